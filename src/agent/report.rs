//! Facts, steps, conditions and heals go up; resumed after the last acknowledgement.
