-- When something was done against the fault last: unix milliseconds, by the agent's clock and never after the hub heard of it. NULL =
-- nothing was; of what a hub of before stored, nothing is known until it is told again.
ALTER TABLE heal ADD COLUMN last_act INTEGER;
-- What was done in the last minutes, over all clusters. It goes by the acts: what agents tell late is no matter of now.
CREATE INDEX heal_acted ON heal (last_act) WHERE last_act IS NOT NULL;
-- heal_lately stays: replicas of before look by it while they are replaced.
-- Those that are not over, the newest first: few of all that there were.
CREATE INDEX heal_not_over ON heal (id) WHERE restored_at IS NULL AND result <> 'failed';
