use serde_json::Value;
use time::OffsetDateTime;
use tokio::task::JoinSet;

use super::book::{BUSY, MOST, SOON, UNUSED};
use super::*;
use crate::agent::gate::well_named;

mod server;

use server::{Kept, Mood, Server, named};

fn subjects(users: &[&str], groups: &[&str]) -> Subjects {
    let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
    Subjects {
        users: owned(users),
        groups: owned(groups),
    }
}

#[test]
fn a_withdrawn_grant_leaves_the_role_at_once() {
    let mut book = Book::default();
    book.grant(&subjects(&["ada", "bob"], &["admin"]));
    book.grant(&subjects(&["bob"], &["admin"]));
    let names: Vec<_> = book.names.keys().map(|n| n.parts().1).collect();
    assert_eq!(names, ["linesman:bob", "linesman:admin"]);
}

#[test]
fn names_in_use_stay_for_a_day() {
    let (mut book, start) = (Book::default(), Instant::now());
    let ada = BTreeSet::from([Name::User("linesman:ada".to_owned())]);
    assert_eq!(book.used(&ada, start), Ok(()));
    book.grant(&subjects(&[], &["admin"]));
    book.prune(start + UNUSED - Duration::from_secs(1));
    assert_eq!(book.names.len(), 2);
    book.prune(start + UNUSED);
    assert_eq!(book.names.len(), 1);
}

#[test]
fn foreign_and_too_many_names_are_refused() {
    let mut book = Book::default();
    book.grant(&subjects(&["a b", "*", ""], &["x\ny"]));
    assert!(book.names.is_empty());
    let masters = BTreeSet::from([Name::Group("system:masters".to_owned())]);
    assert!(book.used(&masters, Instant::now()).is_err());
    let many = (0..MOST)
        .map(|n| Name::User(format!("linesman:u{n}")))
        .collect();
    assert_eq!(book.used(&many, Instant::now()), Ok(()));
    let one_more = BTreeSet::from([Name::User("linesman:last".to_owned())]);
    assert!(book.used(&one_more, Instant::now()).is_err());
}

/// A cluster with more users than the role holds names: groups stay, and whoever comes is let through.
#[test]
fn who_comes_to_a_full_role_takes_the_place_of_who_was_away_for_longest() {
    let (mut book, start) = (Book::default(), Instant::now());
    let users: Vec<String> = (0..MOST + 10).map(|n| format!("u{n:04}")).collect();
    let granted = Subjects {
        users,
        groups: vec!["edit".to_owned(), "view".to_owned()],
    };
    book.grant(&granted);
    let user = |n: usize| Name::User(format!("linesman:u{n:04}"));
    let group = |name: &str| Name::Group(format!("linesman:{name}"));
    let held = |book: &Book| book.names.keys().cloned().collect::<BTreeSet<_>>();
    let first = (0..MOST - 2).map(user);
    let mut expected: BTreeSet<Name> = first.chain([group("edit"), group("view")]).collect();
    assert_eq!(held(&book), expected);
    // The one that was never here and comes last in the order goes.
    let late = BTreeSet::from([user(MOST + 5), group("edit")]);
    assert_eq!(book.used(&late, start), Ok(()));
    expected.remove(&user(MOST - 3));
    expected.insert(user(MOST + 5));
    assert_eq!(held(&book), expected);
    // The hub's word once more takes nobody's place away.
    book.grant(&granted);
    assert_eq!(held(&book), expected);
    // All were here: who was it earliest goes, but nobody within a minute.
    let all: BTreeSet<Name> = (0..MOST - 3).map(user).collect();
    assert_eq!(book.used(&all, start + Duration::from_secs(1)), Ok(()));
    let next = BTreeSet::from([user(MOST + 6), group("view")]);
    let soon = start + BUSY - Duration::from_secs(1);
    assert!(book.used(&next, soon).is_err());
    assert_eq!(book.used(&next, start + BUSY), Ok(()));
    expected.remove(&user(MOST + 5));
    expected.insert(user(MOST + 6));
    assert_eq!(held(&book), expected);
    // A grant that ends takes its names along, however they came in.
    book.grant(&subjects(&["u0000"], &["edit"]));
    assert_eq!(held(&book), [user(0), group("edit")].into());
}

fn constrained(found_on: &str) -> Value {
    let names = [Name::User("linesman:ada".to_owned())];
    let mut role = role(names.iter(), &Form::Constrained(Scope::Full), false);
    role["metadata"]["annotations"] = json!({FOUND_ON: found_on});
    role
}

/// The agent before this one found out that it is constrained, and the API server has no time to say so again.
#[tokio::test]
async fn an_api_server_that_is_busy_costs_no_constraint_and_is_asked_again_soon() {
    let server = Server::new(Mood::Busy, Some(constrained("v1.36.0")));
    let mut kept = Kept::new(&server).await;
    for wait in [SOON, SOON * 2, SOON * 4] {
        assert_eq!(kept.look().await, wait);
        let found = server.state().role.clone().unwrap();
        assert_eq!(found["metadata"]["annotations"][FOUND_ON], "v1.36.0");
    }
    server.state().mood = Mood::Takes;
    assert_eq!(kept.look().await, CHECK);
    assert_eq!(
        server.verbs(),
        BTreeSet::from(["impersonate:user-info".to_owned()]),
        "at no time anything else"
    );
    let found = server.state().role.clone().unwrap();
    assert_eq!(found["metadata"]["annotations"][FOUND_ON], "v1.36.1");
}

#[tokio::test]
async fn what_the_owner_narrows_is_not_widened_on_the_way() {
    let server = Server::new(Mood::Takes, None);
    let mut kept = Kept::new(&server).await;
    assert_eq!(kept.look().await, CHECK);
    server.verbs();
    for mood in [Mood::Busy, Mood::Takes] {
        server.state().mood = mood;
        let read_only = [("readOnly".to_owned(), "true".to_owned())];
        let policy = Policy::parse(&read_only.into(), OffsetDateTime::UNIX_EPOCH).unwrap();
        kept.policy.send_replace(Some(policy));
        kept.look().await;
        let verbs = server.verbs();
        assert!(!verbs.contains("impersonate"), "{verbs:?}");
        let rules = server.state().role.clone().unwrap()["rules"].to_string();
        assert!(
            rules.contains(r#"["pods"]"#) && !rules.contains(":patch"),
            "{rules}"
        );
    }
}

#[tokio::test]
async fn where_nothing_is_known_classic_rules_do_until_the_api_server_says_more() {
    let server = Server::new(Mood::Busy, None);
    let mut kept = Kept::new(&server).await;
    assert_eq!(kept.look().await, SOON);
    let verbs = |server: &Server| server.verbs().into_iter().collect::<Vec<_>>();
    assert_eq!(verbs(&server), ["impersonate", "impersonate:user-info"]);
    server.state().mood = Mood::Takes;
    assert_eq!(kept.look().await, CHECK);
    let rules = server.state().role.clone().unwrap()["rules"].to_string();
    assert!(!rules.contains(r#""impersonate""#), "{rules}");
}

/// H34: no name that a grant can give is the probe's. One that was made a cluster without constrained impersonation look as if it had it, and
/// every request was refused from then on.
#[tokio::test]
async fn a_user_named_probe_is_one_as_any_other() {
    let server = Server::new(Mood::Classic, None);
    let mut kept = Kept::new(&server).await;
    let probe = Name::User("linesman:probe".to_owned());
    let names = BTreeSet::from([
        probe.clone(),
        Name::User("linesman:ada".to_owned()),
        Name::Group("linesman:admin".to_owned()),
    ]);
    kept.book.grant(&subjects(&["ada", "probe"], &["admin"]));
    assert_eq!(kept.book.used(&[probe].into(), Instant::now()), Ok(()));
    assert_eq!(
        kept.book.names.keys().cloned().collect::<BTreeSet<_>>(),
        names
    );
    assert_eq!(kept.look().await, CHECK);
    let found = server.state().role.clone().unwrap();
    assert_eq!(
        found["rules"],
        role(names.iter(), &Form::Classic, false)["rules"]
    );
    assert_eq!(kept.book.form, Some(Form::Classic));
    assert!(!well_named(role::PROBE) && role::PROBE.starts_with("linesman:"));
}

/// Grants come before the owner's policy is read, and would be written without it.
#[tokio::test]
async fn nothing_is_written_before_the_owners_policy_is_known() {
    let server = Server::new(Mood::Takes, None);
    let mut kept = Kept::new(&server).await;
    kept.policy.send_replace(None);
    kept.look().await;
    assert!(server.verbs().is_empty());
}

/// H34: whom no grant names, the role does not name; who is granted is in it, and gone from it with the grant, within 5 s.
#[tokio::test]
async fn the_role_follows_the_grants_within_five_seconds() {
    let server = Server::new(Mood::Takes, None);
    let Kept {
        mut keeper,
        policy: _policy,
        _credential,
        _tasks,
        ..
    } = Kept::new(&server).await;
    let (grants, granted) = watch::channel(Subjects::default());
    keeper.granted = granted;
    let (stop, (_wants, wants)) = (CancellationToken::new(), mpsc::channel(1));
    let mut tasks = JoinSet::new();
    tasks.spawn(keep(keeper, wants, stop.clone()));
    let become_of = async |users: &[&str], groups: &[&str]| {
        grants.send_replace(subjects(users, groups));
        let all = users.iter().chain(groups);
        let wanted: BTreeSet<String> = all.map(|name| format!("linesman:{name}")).collect();
        let follows = async {
            while named(&server) != wanted {
                tokio::task::yield_now().await;
            }
        };
        let followed = tokio::time::timeout(Duration::from_secs(5), follows).await;
        assert!(followed.is_ok(), "{:?}", named(&server));
    };
    become_of(&["ada"], &["edit"]).await;
    become_of(&["ada", "bob"], &["edit", "view"]).await;
    become_of(&["ada"], &["edit"]).await;
    become_of(&[], &[]).await;
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap().unwrap();
}

fn user(name: &str) -> Name {
    Name::User(format!("linesman:{name}"))
}

fn want(names: &[Name]) -> (Want, oneshot::Receiver<Result<(), String>>) {
    let (done, answer) = oneshot::channel();
    let (names, again) = (names.to_vec(), false);
    (Want { names, again, done }, answer)
}

/// Each is judged by their own names; and who is in the role keeps the place in it, whoever comes at the same moment.
#[tokio::test]
async fn a_full_role_refuses_the_newcomer_alone() {
    let server = Server::new(Mood::Takes, None);
    let mut kept = Kept::new(&server).await;
    kept.look().await;
    // With ada, who was not here yet, and the group.
    let busy = (2..MOST).map(|n| user(&format!("u{n}"))).collect();
    assert_eq!(kept.book.used(&busy, Instant::now()), Ok(()));
    let admin = Name::Group("linesman:admin".to_owned());
    let (newcomer, refused) = want(&[user("late"), admin.clone()]);
    let (ada, answer) = want(&[user("ada"), admin.clone()]);
    assert_eq!(kept.round(vec![newcomer, ada]).await, CHECK);
    assert_eq!(kept.told(answer).await, Ok(()));
    let why = kept.told(refused).await.unwrap_err();
    assert!(why.contains("is full with 2000 names"), "{why}");
    assert!(!kept.learn());
    assert_eq!(*kept.keeper.allowed.borrow(), [user("ada"), admin].into());
    assert!(!named(&server).contains("linesman:late"));
}

#[tokio::test]
async fn a_review_that_gets_no_answer_holds_up_nobody_else() {
    let server = Server::new(Mood::Takes, None);
    server.state().mute.insert("linesman:ada".to_owned());
    let Kept {
        keeper,
        policy: _policy,
        _credential,
        _tasks,
        ..
    } = Kept::new(&server).await;
    let (stop, (wants, wanted)) = (CancellationToken::new(), mpsc::channel(2));
    let mut tasks = JoinSet::new();
    tasks.spawn(keep(keeper, wanted, stop.clone()));
    let soon = Duration::from_secs(5);
    let (ada, mut unanswered) = want(&[user("ada")]);
    wants.send(ada).await.unwrap();
    // The first comes in ada's batch, the other while ada is looked at.
    for name in ["bob", "cid"] {
        let (other, answer) = want(&[user(name)]);
        wants.send(other).await.unwrap();
        let told = tokio::time::timeout(soon, answer).await;
        assert_eq!(told.expect("told at once").unwrap(), Ok(()), "{name}");
    }
    let nothing = oneshot::error::TryRecvError::Empty;
    assert_eq!(unanswered.try_recv(), Err(nothing));
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap().unwrap();
}

/// L54: whoever waits for a name is told that the API server fell silent, and the next one is served.
#[tokio::test]
async fn an_api_server_that_says_nothing_keeps_nobody_waiting_for_ever() {
    let server = Server::new(Mood::Takes, None);
    let mut kept = Kept::new(&server).await;
    kept.look().await;
    server.state().mood = Mood::Silent;
    // The clock runs ahead to each deadline.
    tokio::time::pause();
    for (name, what) in [
        ("ada", "review the rights of linesman-line"),
        ("bob", "write ClusterRole linesman-line-subjects"),
    ] {
        let (want, answer) = want(&[user(name)]);
        let asked = Instant::now();
        let next = kept.round(vec![want]).await;
        let why = kept.told(answer).await.unwrap_err();
        let silence = format!("{what}: the API server did not answer in 10 s");
        assert!(why.starts_with(&silence), "{why}");
        assert!(asked.elapsed() < Duration::from_secs(11));
        // Someone may have changed the role.
        assert!(kept.learn() || next == RETRY);
    }
    kept.book.stale = true;
    let why = kept.keeper.serve(&mut kept.book, Vec::new()).await.err();
    assert_eq!(
        why.unwrap(),
        "read ClusterRole linesman-line-subjects: the API server did not answer in 10 s: deadline has elapsed"
    );
    tokio::time::resume();
    server.state().mood = Mood::Takes;
    let (want, answer) = want(&[user("ada")]);
    kept.round(vec![want]).await;
    assert_eq!(kept.told(answer).await, Ok(()));
}

/// L54
#[tokio::test]
async fn a_keeper_that_waits_lives_and_stop_cuts_its_calls() {
    let server = Server::new(Mood::Silent, None);
    let Kept { keeper, hearts, .. } = Kept::new(&server).await;
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let (wants, wanted) = mpsc::channel(1);
    tokio::time::pause();
    tasks.spawn(keep(keeper, wanted, stop.clone()));
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(hearts.stuck(), [], "nothing to do is no fault");
    let (done, _answer) = oneshot::channel();
    let names = vec![Name::User("linesman:ada".to_owned())];
    let again = false;
    wants.send(Want { names, again, done }).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(1), tasks.join_next()).await;
    let ended = ended.expect("stop cuts the call").unwrap();
    ended.unwrap().unwrap();
}
