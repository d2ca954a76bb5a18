-- On which server the session is whose lock says that the leader lives; '' = only the time says so.
ALTER TABLE carillon_leader ADD COLUMN session text NOT NULL DEFAULT '';
