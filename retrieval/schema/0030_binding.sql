-- What the egress guard compares a shown unit with: that the address, the revision and the text in
-- a response are those of the id whose label it looked up. An address, a number and a hash; a
-- title or a body stays out of the guard's reach.

grant select (canonical_address, current_revision) on brain.unit to gw_guard;
grant select (unit_id, revision, body_sha256) on brain.unit_revision to gw_guard;
create policy gw_guard_select on brain.unit_revision for select to gw_guard using (true);
