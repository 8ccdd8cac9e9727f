-- Grants choose clusters by their labels: another label is a change of who may do what.
CREATE CONSTRAINT TRIGGER relabelled AFTER UPDATE OF labels ON cluster
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linesman_changed('access');
