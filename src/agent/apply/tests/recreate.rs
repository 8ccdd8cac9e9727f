//! What is deleted to be made anew.

use tokio::time::Instant;

use super::*;

fn id() -> ObjectId {
    ObjectId::new(Kind::Deployment, "flux-system", "source-controller")
}

fn there(uid: &str) -> Value {
    json!({"metadata": {"name": "source-controller", "namespace": "flux-system", "uid": uid}})
}

/// What was asked, what came of it, and after how many seconds, where looks are answered so, one after the other and the last one
/// for good; none = not at all.
async fn recreated(looks: &[Option<(u16, Value)>]) -> (Vec<Method>, Outcome, u64) {
    let step = Step {
        action: Action::Recreate {
            uid: "uid-1".to_owned(),
        },
        target: id(),
        cause: None,
    };
    let (looks, asked) = (looks.to_vec(), AtomicUsize::new(0));
    let answer = move |method: &Method, uri: &Uri| {
        if *method != Method::GET || !uri.path().ends_with("/source-controller") {
            return Some((200, json!({"metadata": {"name": "source-controller"}})));
        }
        let look = asked.fetch_add(1, Ordering::Relaxed);
        looks[look.min(looks.len() - 1)].clone()
    };
    let begun = Instant::now();
    let (calls, done) = done_by(&step, &Observed::default(), &[], answer).await;
    let methods = calls.into_iter().map(|(method, _)| method);
    let methods = methods.filter(|method| *method != Method::GET);
    (methods.collect(), done.outcome, begun.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_makes_anew_meanwhile_is_left_to_the_next_plan() {
    let looks = [Some((200, there("uid-1"))), Some((200, there("uid-2")))];
    let why = format!("somebody else has made {} anew meanwhile", id());
    assert_eq!(
        recreated(&looks).await,
        (vec![Method::DELETE], Outcome::Failed(why), 0)
    );
}

#[tokio::test(start_paused = true)]
async fn what_does_not_go_is_waited_for_by_the_clock() {
    let still = format!("{} is still being deleted after 30 s", id());
    assert_eq!(
        recreated(&[Some((200, there("uid-1")))]).await,
        (vec![Method::DELETE], Outcome::Failed(still), 30)
    );
    // It is not said of what was not seen.
    let silent = format!(
        "look whether {} is gone: the API server did not answer in 15 s",
        id()
    );
    assert_eq!(
        recreated(&[None]).await,
        (vec![Method::DELETE], Outcome::Unserved(silent), 30)
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_comes_back_though_a_look_failed() {
    let looks = [
        Some(status(500, "etcdserver: leader changed")),
        Some(status(404, "gone")),
    ];
    let (methods, outcome, _) = recreated(&looks).await;
    assert_eq!(methods[..2], [Method::DELETE, Method::PATCH]);
    assert_eq!(outcome, Outcome::Done);
}
