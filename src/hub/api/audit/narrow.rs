//! The words of a question that narrow it to stages, to actions and to a namespace.

use super::super::grants::is_namespace;
use super::super::problem::{Problem, Slug};
use crate::hub::store::OfAction;

/// Actions in one question.
const MOST: usize = 32;
/// Bytes of one: the hub has none that is longer, and what is asked for is on record.
const LONGEST: usize = 64;

/// What a record is of: the beginning of a request, its end, or what was over at once.
const STAGES: [&str; 3] = ["open", "close", "event"];

/// Stages with commas between.
pub(super) fn stages(text: Option<&str>) -> Result<Vec<String>, Problem> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let mut stages: Vec<String> = text.split(',').map(str::to_owned).collect();
    stages.sort_unstable();
    stages.dedup();
    if stages.iter().all(|stage| STAGES.contains(&stage.as_str())) {
        return Ok(stages);
    }
    Err(Problem::new(
        Slug::BadRequest,
        format!(
            "'{}' is not a stage of records",
            crate::hub::cut(text, LONGEST)
        ),
        "write open, close or event, or several of them with commas between",
    ))
}

/// Actions with commas between; one that ends in `.*` stands for all that begin so. They are no closed set: that of a request that is refused
/// may be any method.
pub(super) fn actions(text: Option<&str>) -> Result<Vec<OfAction>, Problem> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let actions = text.split(',').map(action).collect::<Option<Vec<_>>>();
    let few = actions.filter(|actions| actions.len() <= MOST);
    few.ok_or_else(|| {
        Problem::new(
            Slug::BadRequest,
            format!(
                "'{}' is not one to {MOST} actions",
                crate::hub::cut(text, LONGEST)
            ),
            "write them as records do, such as kube.exec or cluster.add, or kube.* for all that begin so",
        )
    })
}

fn action(text: &str) -> Option<OfAction> {
    let begin = text.strip_suffix('*');
    let part = |part: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !part.is_empty() && part.bytes().all(inner)
    };
    let name = match begin {
        Some(begin) => begin.strip_suffix('.')?,
        None => text,
    };
    let good = text.len() <= LONGEST && name.split('.').all(part);
    good.then(|| match begin {
        Some(begin) => OfAction::Below(begin.to_owned()),
        None => OfAction::Only(name.to_owned()),
    })
}

/// Actions as they are asked for.
pub(super) fn shown(actions: &[OfAction]) -> Option<String> {
    let words = actions.iter().map(|action| match action {
        OfAction::Only(name) => name.clone(),
        OfAction::Below(begin) => format!("{begin}*"),
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(","))
}

pub(super) fn namespace(name: Option<&str>) -> Result<Option<String>, Problem> {
    match name {
        Some(name) if !is_namespace(name) => Err(Problem::new(
            Slug::BadRequest,
            format!(
                "'{}' is not the name of a namespace",
                crate::hub::cut(name, LONGEST)
            ),
            "give one namespace; what is asked of all of them at once is in none",
        )),
        name => Ok(name.map(str::to_owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_named_whole_or_by_their_beginning() {
        let read = |text: &str| actions(Some(text)).map_err(|problem| problem.slug);
        let only = |name: &str| OfAction::Only(name.to_owned());
        let below = |begin: &str| OfAction::Below(begin.to_owned());
        for (text, read_as) in [
            ("kube.exec", vec![only("kube.exec")]),
            (
                "kube.exec,cluster.deploy-key.*,login",
                vec![
                    only("kube.exec"),
                    below("cluster.deploy-key."),
                    only("login"),
                ],
            ),
        ] {
            assert_eq!(read(text), Ok(read_as.clone()), "{text}");
            assert_eq!(shown(&read_as).as_deref(), Some(text));
        }
        assert_eq!(actions(None).map_err(|problem| problem.slug), Ok(vec![]));
        assert_eq!(shown(&[]), None);
        let many = ["login"; MOST + 1].join(",");
        let long = "x".repeat(LONGEST + 1);
        for wrong in [
            "",
            "*",
            ".*",
            "kube*",
            "kube.",
            "kube.*.x",
            "a,,b",
            "Kube.exec",
            "kube exec",
            "%",
            &many,
            &long,
        ] {
            assert_eq!(read(wrong), Err(Slug::BadRequest), "{wrong}");
        }
    }

    #[test]
    fn stages_are_named_as_records_have_them() {
        let read = |text: Option<&str>| stages(text).map_err(|problem| problem.slug);
        let named = |stages: &[&str]| -> Result<Vec<String>, Slug> {
            Ok(stages.iter().map(|stage| (*stage).to_owned()).collect())
        };
        assert_eq!(read(None), named(&[]));
        assert_eq!(read(Some("open")), named(&["open"]));
        assert_eq!(read(Some("event,close,close")), named(&["close", "event"]));
        for wrong in ["", "ended", "Open", "open,", "open close"] {
            assert_eq!(read(Some(wrong)), Err(Slug::BadRequest), "{wrong}");
        }
    }

    #[test]
    fn what_can_be_no_namespace_is_refused() {
        let read = |name: Option<&str>| namespace(name).map_err(|problem| problem.slug);
        assert_eq!(read(None), Ok(None));
        assert_eq!(read(Some("shop-1")), Ok(Some("shop-1".to_owned())));
        for wrong in ["", "%", "a_b", "a/b", "Shop"] {
            assert_eq!(read(Some(wrong)), Err(Slug::BadRequest), "{wrong}");
        }
    }
}
