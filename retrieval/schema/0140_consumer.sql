-- The listing of units: class by class, by canonical address, byte by byte, whatever the server's
-- collation.
create index unit_listing on brain.unit (class_id, canonical_address collate "C");
