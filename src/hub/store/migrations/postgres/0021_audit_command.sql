-- What a session runs, in which container, and the ports of a port-forward, as far as the request's query says so; each is part of the
-- record's hash where there is one.
ALTER TABLE audit ADD COLUMN container TEXT COLLATE "C";
ALTER TABLE audit ADD COLUMN command TEXT COLLATE "C";
ALTER TABLE audit ADD COLUMN ports TEXT COLLATE "C";
