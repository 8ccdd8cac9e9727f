-- A key that ends: the other replicas close what its holder has open there.
CREATE CONSTRAINT TRIGGER ended AFTER UPDATE OF state ON cluster_key
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 'revoked' AND OLD.state <> 'revoked')
  EXECUTE FUNCTION linesman_changed('clusters');
