-- Which files of a stored policy came from an overlay.
--
-- Laws
--   Only such a file may bind an issuer on loopback, so a process that reads the policy from here
--   must know which they were. An overlay is for development: a signed release has none.
--   They are part of what is stored: `keep_release` and `keep_candidate` let nobody change them.

alter table gate.policy_release
    add column overlaid text[] not null default '{}',
    add constraint overlay_is_unsigned check (jws is null or overlaid = '{}');
alter table gate.policy_candidate add column overlaid text[] not null default '{}';
