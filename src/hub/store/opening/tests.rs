use std::pin::pin;

use futures_util::poll;

use super::*;

fn directory(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("linesman-lock-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_is_let_go_of_in_a_moment_is_waited_for() {
    let data = directory("moment");
    let held = lock(&data, Share::Alone).await.unwrap();
    let mut next = pin!(lock(&data, Share::Alone));
    assert!(poll!(&mut next).is_pending());
    drop(held);
    next.await.unwrap();
}

/// Whoever runs another user's hub was told to look at the flags.
#[test]
fn what_the_system_refuses_ends_with_what_helps() {
    let said = |kind: ErrorKind| {
        let why = format!("no{}", helps(kind));
        why.split_once("; ").map(|(_, next)| next.to_owned())
    };
    let user = "run it as the hub's user, or name a data directory of your own with --data";
    assert_eq!(said(ErrorKind::PermissionDenied).as_deref(), Some(user));
    assert_eq!(said(ErrorKind::Interrupted), None);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_another_hub_has_is_refused() {
    let data = directory("held");
    let _held = lock(&data, Share::Several).await.unwrap();
    lock(&data, Share::Several).await.unwrap();
    let began = Instant::now();
    let refused = lock(&data, Share::Alone).await.unwrap_err().to_string();
    assert_eq!(began.elapsed(), LET_GO);
    let path = data.join("hub.lock");
    assert_eq!(
        refused,
        format!(
            "lock {}: another hub runs on this data directory; stop it first",
            path.display()
        )
    );
}
