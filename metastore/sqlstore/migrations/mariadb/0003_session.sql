-- On which server the session is whose lock says that the leader lives; '' = only the time says so.
ALTER TABLE carillon_leader ADD COLUMN IF NOT EXISTS session varbinary(300) NOT NULL DEFAULT '';
