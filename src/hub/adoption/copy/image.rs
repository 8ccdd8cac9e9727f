//! The image that a copy names, and whether it is known yet which one stays.

use crate::hub::store::Cluster;
use crate::wire::report::{Condition, ConditionType, Status, is_of_wish};

/// The image that an operator chose later than the YAML was made, unless it is known not to work.
pub(super) fn image(cluster: &Cluster, said: &[Condition]) -> Option<String> {
    let failed = said
        .iter()
        .filter(|c| c.kind == ConditionType::AgentCurrent)
        .any(|c| c.status == Status::False);
    cluster.desired_image.clone().filter(|_| !failed)
}

/// Whether it is not known yet if the agent stays with the image that is wished of it. What it said of a wish before for the same
/// image, which was withdrawn meanwhile, does not count.
pub(super) fn is_changing(wished: Option<&str>, wish: u64, said: &[Condition]) -> bool {
    let Some(wished) = wished else {
        return false;
    };
    let current = said.iter().find(|c| c.kind == ConditionType::AgentCurrent);
    current.is_none_or(|current| {
        let about = current.message.strip_prefix(wished);
        let about = about.and_then(|rest| rest.strip_prefix(": "));
        let about = about.is_some_and(|rest| is_of_wish(rest, wish));
        let ended = current.status == Status::True || current.reason == "Returned";
        !about || !ended
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: Status, reason: &str, message: &str) -> Vec<Condition> {
        vec![Condition {
            kind: ConditionType::AgentCurrent,
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
            since: String::new(),
        }]
    }

    /// W27: an image on trial may be taken back; then the copy stays with the one before.
    #[test]
    fn a_copy_waits_until_it_is_known_which_image_stays() {
        for (wished, said, changing) in [
            (None, vec![], false),
            (
                None,
                said(Status::False, "Changing", "r/a:2: on trial"),
                false,
            ),
            (Some("r/a:2"), vec![], true),
            (
                Some("r/a:2"),
                said(Status::True, "AsInstalled", "r/a:1: no other"),
                true,
            ),
            (
                Some("r/a:2"),
                said(Status::False, "Changing", "r/a:2: on trial"),
                true,
            ),
            (
                Some("r/a:2"),
                said(Status::False, "Waits", "r/a:2: it waits"),
                true,
            ),
            (
                Some("r/a:2"),
                said(Status::False, "Returned", "r/a:1: silent"),
                true,
            ),
            (
                Some("r/a:2"),
                said(Status::False, "Returned", "r/a:2: silent"),
                false,
            ),
            (
                Some("r/a:2"),
                said(Status::True, "InForce", "r/a:2: the agent runs it"),
                false,
            ),
            (
                Some("r/a:2"),
                said(Status::True, "InForce", "r/a:23: the agent runs it"),
                true,
            ),
        ] {
            let found = is_changing(wished, 4, &said);
            assert_eq!(found, changing, "{wished:?} {said:?}");
        }
    }

    /// W27: what is said of the wish before tells nothing of this one.
    #[test]
    fn a_copy_waits_for_a_word_about_the_present_wish() {
        for (wished, said, changing) in [
            (
                Some("r/a:2"),
                said(Status::False, "Returned", "r/a:2: wish 2: silent"),
                true,
            ),
            (
                Some("r/a:2"),
                said(Status::True, "InForce", "r/a:2: wish 41: the agent runs it"),
                true,
            ),
            (
                Some("r/a:2"),
                said(Status::False, "Returned", "r/a:2: wish 4: silent"),
                false,
            ),
            (
                Some("r/a:2"),
                said(Status::True, "InForce", "r/a:2: wish 4: the agent runs it"),
                false,
            ),
        ] {
            let found = is_changing(wished, 4, &said);
            assert_eq!(found, changing, "{wished:?} {said:?}");
        }
    }
}
