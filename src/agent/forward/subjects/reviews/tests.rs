use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;

use super::*;

type Answer = oneshot::Receiver<Result<(), String>>;

const RIGHT: Right = ("impersonate", "");

/// An API server's reviews, and each that it was asked for.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<(Right, String, Instant)>>>);

impl Asked {
    /// It takes so long, and says yes to a name so long after the first question for it; `None` = never.
    fn reviews(
        &self,
        of: impl Fn(&str) -> (Duration, Option<Duration>) + Send + 'static,
    ) -> Reviews {
        let asked = self.clone();
        Reviews::new(RIGHT, move |right, name| {
            let (asked, name) = (asked.clone(), name.parts().1.to_owned());
            let (takes, visible) = of(&name);
            let look = async move {
                let now = Instant::now();
                let first = asked.first(&name).unwrap_or(now);
                asked.0.lock().unwrap().push((right, name, now));
                sleep(takes).await;
                Ok(visible.is_some_and(|after| now - first >= after))
            };
            look.boxed()
        })
    }

    fn first(&self, name: &str) -> Option<Instant> {
        let asked = self.0.lock().unwrap();
        let found = asked.iter().find(|(_, of, _)| of == name);
        found.map(|(.., at)| *at)
    }
}

fn want(names: &[&str]) -> (Want, Answer) {
    let (done, answer) = oneshot::channel();
    let names = names.iter().map(|name| Name::User((*name).to_owned()));
    let names = names.collect();
    let again = false;
    (Want { names, again, done }, answer)
}

/// What is told to who waits for this.
async fn told(reviews: &mut Reviews, mut answer: Answer) -> Result<(), String> {
    loop {
        tokio::select! {
            biased;
            told = &mut answer => return told.unwrap(),
            () = reviews.step() => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_review_that_does_not_answer_holds_up_only_who_waits_for_it() {
    let silence = Duration::from_secs(10);
    let mut reviews = Reviews::new(RIGHT, move |_, name| {
        let silent = name.parts().1 == "silent";
        let look = async move {
            if silent {
                sleep(silence).await;
                anyhow::bail!("the API server did not answer in 10 s");
            }
            Ok(true)
        };
        look.boxed()
    });
    let start = Instant::now();
    let (slow, late) = want(&["silent", "group"]);
    let (ada, soon) = want(&["ada", "group"]);
    reviews.admit(RIGHT, vec![slow, ada]);
    assert_eq!(told(&mut reviews, soon).await, Ok(()));
    // Nor who comes while it is waited for.
    let (bob, soon) = want(&["bob", "group"]);
    reviews.admit(RIGHT, vec![bob]);
    assert_eq!(told(&mut reviews, soon).await, Ok(()));
    assert_eq!(start.elapsed(), Duration::ZERO);
    let why = told(&mut reviews, late).await.unwrap_err();
    assert_eq!(why, "the API server did not answer in 10 s");
    assert!(start.elapsed() >= silence);
    let known = ["ada", "bob", "group"].map(|name| Name::User(name.to_owned()));
    assert_eq!(reviews.learned, BTreeSet::from(known));
    assert!(reviews.failed);
}

#[tokio::test(start_paused = true)]
async fn a_refused_name_is_told_to_those_alone_who_want_it() {
    let yes = Some(Duration::ZERO);
    let mut reviews = Asked::default().reviews(move |name| {
        let visible = if name == "refused" { None } else { yes };
        (Duration::ZERO, visible)
    });
    let (one, refused) = want(&["ada", "refused"]);
    let (other, served) = want(&["ada"]);
    reviews.admit(RIGHT, vec![one, other]);
    assert_eq!(told(&mut reviews, served).await, Ok(()));
    assert!(!reviews.failed);
    let why = told(&mut reviews, refused).await.unwrap_err();
    assert!(
        why.starts_with("linesman-line may not act as users refused"),
        "{why}"
    );
    assert!(reviews.failed && !reviews.learned.contains(&Name::User("refused".to_owned())));
}

/// The last of a long batch has as much time as the first.
#[tokio::test(start_paused = true)]
async fn each_name_has_its_time_from_its_first_look_on() {
    let almost = VISIBLE.saturating_sub(BETWEEN * 2);
    let mut reviews = Asked::default().reviews(move |_| (Duration::ZERO, Some(almost)));
    let names: Vec<String> = (0..=AT_ONCE).map(|n| format!("u{n}")).collect();
    let (wants, answers): (Vec<_>, Vec<_>) = names.iter().map(|name| want(&[name])).unzip();
    let start = Instant::now();
    reviews.admit(RIGHT, wants);
    for answer in answers {
        assert_eq!(told(&mut reviews, answer).await, Ok(()));
    }
    let all = start.elapsed();
    assert!(all > VISIBLE && all < VISIBLE * 2, "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn reviews_run_a_few_at_a_time_and_not_for_who_left() {
    let second = Duration::from_secs(1);
    let asked = Asked::default();
    let mut reviews = asked.reviews(move |_| (second, Some(Duration::ZERO)));
    let names: Vec<String> = (0..AT_ONCE * 2).map(|n| format!("u{n}")).collect();
    let (wants, answers): (Vec<_>, Vec<_>) = names.iter().map(|name| want(&[name])).unzip();
    let (gone, answer) = want(&["gone"]);
    drop(answer);
    let start = Instant::now();
    reviews.admit(RIGHT, [gone].into_iter().chain(wants).collect());
    for answer in answers {
        assert_eq!(told(&mut reviews, answer).await, Ok(()));
    }
    assert!(start.elapsed() >= second * 2 && start.elapsed() < second * 3);
    assert_eq!(asked.first("gone"), None);
    let asked = asked.0.lock().unwrap();
    let at_start = asked.iter().filter(|(.., at)| *at == start).count();
    assert_eq!(at_start, AT_ONCE);
}

/// What the API server says of a role before it was written is no answer for whom it was written.
#[tokio::test(start_paused = true)]
async fn a_look_that_began_before_somebody_came_is_not_theirs() {
    let second = Duration::from_secs(1);
    let asked = Asked::default();
    let mut reviews = asked.reviews(move |_| (second, Some(Duration::ZERO)));
    let start = Instant::now();
    let (first, one) = want(&["ada"]);
    reviews.admit(RIGHT, vec![first]);
    let half = tokio::time::timeout(second / 2, reviews.step()).await;
    assert!(half.is_err());
    let (second_one, other) = want(&["ada"]);
    let constrained = ("impersonate:user-info", "authentication.k8s.io");
    reviews.admit(constrained, vec![second_one]);
    assert_eq!(told(&mut reviews, one).await, Ok(()));
    let between = start.elapsed();
    assert!(between >= second && between < second * 2, "{between:?}");
    assert_eq!(told(&mut reviews, other).await, Ok(()));
    assert!(start.elapsed() >= second * 2);
    let asked = asked.0.lock().unwrap();
    let rights: Vec<Right> = asked.iter().map(|(right, ..)| *right).collect();
    assert_eq!(rights, [RIGHT, constrained]);
}

#[tokio::test(start_paused = true)]
async fn who_may_wait_is_limited() {
    let mut reviews = Asked::default().reviews(|_| (Duration::from_secs(1), None));
    let (wants, answers): (Vec<_>, Vec<_>) = (0..WAITING).map(|_| want(&["ada"])).unzip();
    reviews.admit(RIGHT, wants);
    assert!(!reviews.has_room());
    // Who left makes room.
    drop(answers);
    reviews.step().await;
    assert!(reviews.has_room());
}
