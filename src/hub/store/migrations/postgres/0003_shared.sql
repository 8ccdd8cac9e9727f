-- The replica that wrote the record; NULL = the hub is alone. Not part of what is hashed.
ALTER TABLE audit ADD COLUMN writer TEXT COLLATE "C";

-- How often each kind of record has changed: replicas look here for what the others did. It is counted at the very end of the
-- transaction that changes something, so nobody can forget it, and its row is locked for a moment only.
CREATE TABLE change (
  topic TEXT COLLATE "C" PRIMARY KEY,
  n     BIGINT NOT NULL
);
INSERT INTO change (topic, n) VALUES ('access', 0), ('clusters', 0), ('common', 0), ('push', 0);

CREATE FUNCTION linesman_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE change SET n = n + 1 WHERE topic = TG_ARGV[0];
  -- The same word in one transaction is sent once.
  PERFORM pg_notify('linesman', TG_ARGV[0]);
  RETURN NULL;
END
$$;

-- Who may do what.
CREATE CONSTRAINT TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON access_grant
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linesman_changed('access');
CREATE CONSTRAINT TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON "user"
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linesman_changed('access');
CREATE CONSTRAINT TRIGGER changed AFTER UPDATE OR DELETE ON api_token
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linesman_changed('access');
CREATE CONSTRAINT TRIGGER changed AFTER DELETE OR UPDATE OF ended_at ON session
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linesman_changed('access');

-- What a cluster is told, and whether it is there.
CREATE CONSTRAINT TRIGGER changed AFTER UPDATE OF assignment_revision, removed_at ON cluster
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linesman_changed('clusters');

-- What all clusters are told, and the last push to the catalog.
CREATE CONSTRAINT TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON host_key
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linesman_changed('common');
CREATE CONSTRAINT TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON catalog_signer
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linesman_changed('common');
CREATE CONSTRAINT TRIGGER changed AFTER INSERT OR UPDATE ON meta
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.key <> 'push') EXECUTE FUNCTION linesman_changed('common');
CREATE CONSTRAINT TRIGGER removed AFTER DELETE ON meta
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linesman_changed('common');
CREATE CONSTRAINT TRIGGER pushed AFTER INSERT OR UPDATE ON meta
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.key = 'push') EXECUTE FUNCTION linesman_changed('push');
