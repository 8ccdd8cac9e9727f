//! Follows a wish that an agent carries out and may undo, by the condition in which it says so.

use std::time::Duration;

use anyhow::Result;

use super::cluster;
use super::exit::{Code, Failure};
use super::output::progress_line;
use super::wait::{self, Found, Patience};
use crate::client::Client;
use crate::wire::api::ToldCluster;
use crate::wire::id::ClusterName;
use crate::wire::report::{ConditionType, Status, is_of_wish};
use crate::wire::word::Word;

/// What is followed.
pub(super) struct Wish<'a> {
    pub(super) kind: ConditionType,
    /// With this, the condition's message is about this wish and no other one.
    pub(super) about: String,
    /// The number of the wish, where it has one.
    pub(super) number: u64,
    /// What is waited for, for people.
    pub(super) until: &'a str,
    /// What a person does where it was undone.
    pub(super) undone: String,
}

/// Tells how it goes, where somebody waits for it.
pub(super) async fn follow(
    client: &Client,
    name: &ClusterName,
    wish: &Wish<'_>,
    wait: Option<Duration>,
) -> Result<()> {
    let Some(limit) = wait else {
        progress_line(&format!("see how it goes: linesman cluster show {name}"));
        return Ok(());
    };
    let next = format!("it goes on by itself; look closer: linesman cluster show {name}");
    let patience = Patience { limit, next: &next };
    let asked = wait::until(wish.until, patience, async || {
        Ok(match state(&client.cluster(name).await?, wish) {
            State::Done(told) => Found::Over(told),
            State::Waits(lack) => Found::Waits(lack),
            State::Undone(told) => {
                Found::Never(Failure::new(Code::Failed, told, wish.undone.clone()))
            }
        })
    });
    let (told, took) = asked.await?;
    progress_line(&format!("{told} ({took:.1} s)"));
    Ok(())
}

impl Wish<'_> {
    fn is_in(&self, message: &str) -> bool {
        let rest = message.strip_prefix(&self.about);
        rest.is_some_and(|rest| is_of_wish(rest, self.number))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Done(String),
    Undone(String),
    Waits(String),
}

/// What the agent last said of this wish.
fn state(cluster: &ToldCluster, wish: &Wish<'_>) -> State {
    let mut told = cluster.conditions.iter();
    let told = told.find(|c| c.kind == wish.kind && wish.is_in(&c.message));
    let Some(told) = told else {
        let lack = format!("cluster {} has not begun yet", cluster.name);
        return State::Waits(cluster::awaits(cluster, lack));
    };
    let text = told.message.clone();
    match (&told.status, told.reason.as_str()) {
        (Word::Known(Status::True), _) => State::Done(text),
        (_, "Returned") => State::Undone(text),
        (Word::Known(Status::False | Status::Unknown) | Word::Later(_), _) => State::Waits(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cluster::wait;
    use crate::wire::api::ToldCondition;
    use crate::wire::report::Phase;

    #[test]
    fn only_the_word_about_this_wish_counts() {
        for (kind, about, other) in [
            (ConditionType::EngineCurrent, "change 12: ", "change 1: "),
            (ConditionType::AgentCurrent, "b: ", "a: "),
        ] {
            let wish = Wish {
                kind,
                about: about.to_owned(),
                number: 0,
                until: "",
                undone: String::new(),
            };
            let says = |status: Word<Status>, reason: &str, message: &str| {
                let told = ToldCondition {
                    kind: kind.into(),
                    status,
                    reason: reason.to_owned(),
                    message: message.to_owned(),
                    since: String::new(),
                };
                let mut cluster = wait::tests::cluster(Phase::Healthy, &[], vec![told]);
                cluster.line.up = true;
                state(&cluster, &wish)
            };
            let waits = says(
                Status::True.into(),
                "InForce",
                &format!("{other}flux 2.9.5"),
            );
            assert!(matches!(waits, State::Waits(text) if text.contains("not begun")));
            let text = format!("{about}flux 2.9.5");
            assert_eq!(
                says(Status::True.into(), "InForce", &text),
                State::Done(text.clone())
            );
            assert_eq!(
                says(Status::False.into(), "Changing", &text),
                State::Waits(text.clone())
            );
            assert_eq!(
                says(Word::Later("Mostly".to_owned()), "Changing", &text),
                State::Waits(text.clone())
            );
            assert_eq!(
                says(Status::False.into(), "Returned", &text),
                State::Undone(text.clone())
            );
        }
    }

    /// H10: where a WebSocket is blocked there is no line, and the wish is carried out all the same.
    #[test]
    fn an_agent_that_is_heard_by_https_is_not_said_to_wait_for_its_line() {
        let wish = Wish {
            kind: ConditionType::AgentCurrent,
            about: "b: ".to_owned(),
            number: 4,
            until: "",
            undone: String::new(),
        };
        let by_https = "cluster eu1 has not begun yet; the line of cluster eu1 is down, and its agent takes orders with its \
                        reports by HTTPS";
        for (phase, lack) in [
            (Phase::Healthy, by_https),
            (Phase::Offline, "the line of cluster eu1 is down"),
        ] {
            let cluster = wait::tests::cluster(phase, &[], Vec::new());
            assert_eq!(state(&cluster, &wish), State::Waits(lack.to_owned()));
        }
    }

    /// An image that was withdrawn and given anew: the word about it may be the one about the wish before.
    #[test]
    fn the_word_about_the_same_image_by_a_wish_before_does_not_count() {
        let wish = Wish {
            kind: ConditionType::AgentCurrent,
            about: "b: ".to_owned(),
            number: 4,
            until: "",
            undone: String::new(),
        };
        for (message, counts) in [
            ("b: wish 2: no Pod of it; a serves", false),
            ("b: wish 41: no Pod of it; a serves", false),
            ("b: wish 4: no Pod of it; a serves", true),
            // An agent of before.
            ("b: no Pod of it; a serves", true),
            ("a: wish 4: the agent runs it", false),
        ] {
            assert_eq!(wish.is_in(message), counts, "{message}");
        }
    }
}
