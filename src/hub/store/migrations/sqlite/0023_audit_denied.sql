-- What was refused, of which there is little: found without looking through what was not.
CREATE INDEX audit_denied ON audit (verdict, seq) WHERE verdict = 'deny';
