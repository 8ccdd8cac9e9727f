-- Whom a grant lets act as with kubectl --as: ["user:NAME", "group:NAME"].
ALTER TABLE access_grant ADD COLUMN act_as TEXT NOT NULL DEFAULT '[]';
-- Whom a request went as, where that is not its actor; part of the record's hash where there is one.
ALTER TABLE audit ADD COLUMN acted_as TEXT;
