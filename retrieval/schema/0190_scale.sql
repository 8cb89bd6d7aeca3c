-- What a request reads may not grow with what its caller may not see: threads by class, as units are.
create index thread_class on brain.thread (class_id);
