-- The listing of units goes by canonical address, byte by byte, whatever the server's collation.
create index unit_listing on brain.unit (canonical_address collate "C");
