//! What replicas of the hub ring through the database, so that the others need not wait for their next look.

/// What wakes a replica before it looks by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bell {
    /// Something changed: look what.
    Look,
    /// The line of the cluster with this id is another now.
    Line(String),
    /// The heal with this id has ended.
    Healed(String),
}

impl Bell {
    const LINE: &str = "line ";
    const HEALED: &str = "healed ";

    pub(super) fn word(&self) -> String {
        match self {
            Self::Look => "look".to_owned(),
            Self::Line(cluster_id) => format!("{}{cluster_id}", Self::LINE),
            Self::Healed(id) => format!("{}{id}", Self::HEALED),
        }
    }

    /// What a newer build rings is a reason to look as well.
    pub(super) fn parse(word: &str) -> Self {
        if let Some(cluster_id) = word.strip_prefix(Self::LINE) {
            Self::Line(cluster_id.to_owned())
        } else if let Some(id) = word.strip_prefix(Self::HEALED) {
            Self::Healed(id.to_owned())
        } else {
            Self::Look
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_is_heard_as_it_was_rung() {
        for bell in [
            Bell::Look,
            Bell::Line("c1".to_owned()),
            Bell::Healed("h1".to_owned()),
        ] {
            assert_eq!(Bell::parse(&bell.word()), bell);
        }
        for word in ["", "access", "lines c1", "from a newer build"] {
            assert_eq!(Bell::parse(word), Bell::Look);
        }
    }
}
