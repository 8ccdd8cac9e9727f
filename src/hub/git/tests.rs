use super::*;

/// A directory of its own that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = crate::keys::hex(&crate::clock::random::<8>());
        let path = std::env::temp_dir().join(format!("linesman-git-{name}"));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn repo(&self) -> PathBuf {
        self.0.join("catalog.git")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn some(files: &[(&str, &str)]) -> Files {
    let pair = |(p, c): &(&str, &str)| ((*p).to_owned(), c.as_bytes().to_vec());
    files.iter().map(pair).collect()
}

fn change(files: &[(&str, &str)], only_missing: bool) -> Change {
    Change {
        files: some(files),
        only_missing,
        gone: BTreeSet::new(),
        author: Author::hub(),
        message: "change".to_owned(),
    }
}

#[tokio::test]
async fn the_template_is_committed_once() {
    let folder = Folder::new();
    let template = some(&[("README.md", "hi"), ("clusters/eu1/base.yaml", "a")]);
    ensure(&folder.repo(), &template, Others::Nobody)
        .await
        .unwrap();
    let first = head(&folder.repo(), BRANCH).await.unwrap();
    assert_eq!(files(&folder.repo(), BRANCH).await.unwrap(), template);
    let other = some(&[("README.md", "other")]);
    ensure(&folder.repo(), &other, Others::Nobody)
        .await
        .unwrap();
    assert_eq!(head(&folder.repo(), BRANCH).await.unwrap(), first);
}

#[tokio::test]
async fn a_half_made_repository_is_finished() {
    let folder = Folder::new();
    let template = some(&[("README.md", "hi")]);
    // A crash after the directory, after the objects, and while the branch was being written.
    std::fs::create_dir_all(folder.repo()).unwrap();
    ensure(&folder.repo(), &template, Others::Nobody)
        .await
        .unwrap();
    let branch = folder.repo().join("refs/heads/main");
    std::fs::remove_file(&branch).unwrap();
    std::fs::write(branch.with_extension("lock"), "").unwrap();
    ensure(&folder.repo(), &template, Others::Nobody)
        .await
        .unwrap();
    assert_eq!(files(&folder.repo(), BRANCH).await.unwrap(), template);
    assert!(!branch.with_extension("lock").exists());
}

/// H29: a replica that starts beside others takes no lock from a push that one of them carries out.
#[tokio::test]
async fn a_start_beside_other_replicas_leaves_their_locks_alone() {
    let folder = Folder::new();
    let repo = folder.repo();
    let template = some(&[("README.md", "hi")]);
    let lock = repo.join("refs/heads/main.lock");
    let packed = repo.join("packed-refs.lock");
    // Nobody can push before there is a branch: what hinders the first start is nobody's.
    std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
    std::fs::write(&lock, "").unwrap();
    ensure(&repo, &template, Others::Replicas).await.unwrap();
    assert!(!lock.exists());

    let making = [repo.join("HEAD.lock"), repo.join("config.lock")];
    for path in [&lock, &packed].into_iter().chain(&making) {
        std::fs::write(path, "").unwrap();
    }
    ensure(&repo, &template, Others::Replicas).await.unwrap();
    let left = [&lock, &packed, &making[0], &making[1]].map(|path| path.exists());
    assert_eq!(left, [true, true, false, false]);
    ensure(&repo, &template, Others::Nobody).await.unwrap();
    assert_eq!([lock, packed].map(|path| path.exists()), [false, false]);
}

/// H38 of `cluster add`.
#[tokio::test]
async fn missing_files_are_added_and_others_left_alone() {
    let folder = Folder::new();
    let repo = folder.repo();
    ensure(&repo, &some(&[("a", "1")]), Others::Nobody)
        .await
        .unwrap();
    let before = head(&repo, BRANCH).await.unwrap();
    let same = commit(&repo, BRANCH, change(&[("a", "2")], true)).await;
    assert_eq!(same.unwrap(), None);
    let added = commit(&repo, BRANCH, change(&[("a", "2"), ("d/b", "3")], true)).await;
    let added = added.unwrap().unwrap();
    assert_eq!(
        files(&repo, BRANCH).await.unwrap(),
        some(&[("a", "1"), ("d/b", "3")])
    );
    let changes = changed(&repo, before.as_deref(), &added).await.unwrap();
    assert_eq!(changes.paths, ["d/b"]);
    commit(&repo, BRANCH, change(&[("a", "2")], false))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        files(&repo, BRANCH).await.unwrap(),
        some(&[("a", "2"), ("d/b", "3")])
    );
    assert!(contains(&repo, BRANCH, &added).await.unwrap());
    assert!(!contains(&repo, BRANCH, &"1".repeat(40)).await.unwrap());
}

#[tokio::test]
async fn only_the_directories_that_are_asked_for_are_read() {
    let folder = Folder::new();
    let repo = folder.repo();
    let all = [("a", "1"), ("d/b", "2"), ("d/e/f", "3"), ("d.x/g", "4")];
    ensure(&repo, &some(&all), Others::Nobody).await.unwrap();
    for (directories, expected) in [
        (vec!["d"], &all[1..3]),
        (vec!["d/e", "d.x"], &all[2..]),
        // A file is no directory.
        (vec!["a", "no", "d/no"], &[]),
    ] {
        let asked = directories.iter().map(|name| (*name).to_owned()).collect();
        let found = below(&repo, BRANCH, asked).await.unwrap();
        assert_eq!(found, some(expected), "{directories:?}");
    }
    let none = below(&repo, "other", vec!["d".to_owned()]).await;
    assert_eq!(none.unwrap(), Files::new());
}

/// A push between the look and the commit: what somebody changed stays, and so does what was to change with it.
#[tokio::test]
async fn files_that_somebody_changed_meanwhile_are_not_written_over() {
    let folder = Folder::new();
    let repo = folder.repo();
    let seen = some(&[("a", "1"), ("d/b", "2")]);
    ensure(&repo, &seen, Others::Nobody).await.unwrap();
    let asked = some(&[("a", "1"), ("d/b", "other"), ("no", "1")]);
    let same = just_so(&repo, BRANCH, asked).await.unwrap();
    assert_eq!(same, ["a".to_owned()].into());
    let wish = || change(&[("a", "3"), ("d/b", "4")], false);

    // Beside them.
    commit(&repo, BRANCH, change(&[("c", "5")], false))
        .await
        .unwrap()
        .unwrap();
    let made = commit_instead(&repo, BRANCH, wish(), &seen).await;
    assert_eq!(made.unwrap(), head(&repo, BRANCH).await.unwrap());
    let theirs = some(&[("a", "3"), ("c", "5"), ("d/b", "4")]);
    assert_eq!(files(&repo, BRANCH).await.unwrap(), theirs);

    // One of them, or all of it.
    let seen = some(&[("a", "3"), ("d/b", "of before")]);
    let made = commit_instead(&repo, BRANCH, change(&[("a", "6")], false), &seen).await;
    assert_eq!(made.unwrap(), None);
    assert_eq!(files(&repo, BRANCH).await.unwrap(), theirs);
    let made = commit_instead(&repo, "other", wish(), &seen).await;
    assert_eq!(made.unwrap(), None);
    assert_eq!(head(&repo, "other").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commits_at_the_same_time_are_all_kept() {
    let folder = Folder::new();
    let repo = folder.repo();
    ensure(&repo, &some(&[("a", "1")]), Others::Nobody)
        .await
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    // More than a commit has tries.
    for i in 0..30 {
        let repo = repo.clone();
        tasks.spawn(async move {
            let name = format!("clusters/c{i}/base.yaml");
            commit(&repo, BRANCH, change(&[(&name, "x")], true)).await
        });
    }
    while let Some(done) = tasks.join_next().await {
        assert!(done.unwrap().unwrap().is_some());
    }
    assert_eq!(files(&repo, BRANCH).await.unwrap().len(), 31);
}

#[tokio::test]
async fn a_proposal_is_withdrawn_where_the_base_has_it_all() {
    let folder = Folder::new();
    let repo = folder.repo();
    ensure(&repo, &some(&[("a", "1")]), Others::Nobody)
        .await
        .unwrap();
    let wish = |text: &'static str| propose(&repo, BRANCH, "of/eu1", change(&[("a", text)], false));
    let proposed = async || head(&repo, "of/eu1").await.unwrap();
    assert_eq!(wish("1").await.unwrap(), None);
    assert_eq!(proposed().await, None);
    let made = wish("2").await.unwrap();
    assert!(made.is_some());
    assert_eq!(proposed().await, made);
    assert_eq!(wish("1").await.unwrap(), None);
    assert_eq!(proposed().await, None, "whoever merges it has the 2");

    wish("2").await.unwrap().unwrap();
    for (prefix, found) in [("of/", vec!["eu1"]), ("of/eu", vec!["1"]), ("eu", vec![])] {
        let found: BTreeSet<String> = found.into_iter().map(str::to_owned).collect();
        assert_eq!(branches(&repo, prefix).await.unwrap(), found, "{prefix}");
    }
    for _ in 0..2 {
        withdraw(&repo, "of/eu1").await.unwrap();
        assert_eq!(proposed().await, None);
    }
}

#[tokio::test]
async fn a_branch_without_commits_is_empty() {
    let folder = Folder::new();
    ensure(&folder.repo(), &some(&[("a", "1")]), Others::Nobody)
        .await
        .unwrap();
    assert_eq!(head(&folder.repo(), "other").await.unwrap(), None);
    assert!(files(&folder.repo(), "other").await.unwrap().is_empty());
}

/// Whoever pushes chooses these words: no control character of theirs reaches a terminal.
#[tokio::test]
async fn who_made_a_commit_is_told_without_control_characters() {
    let folder = Folder::new();
    let repo = folder.repo();
    ensure(&repo, &some(&[("a", "1")]), Others::Nobody)
        .await
        .unwrap();
    let change = Change {
        author: Author {
            name: "Ann\u{1b}[31m".to_owned(),
            email: "ann@example.com".to_owned(),
        },
        message: "Faster\u{7}\n\nand more".to_owned(),
        ..change(&[("a", "2")], false)
    };
    let id = commit(&repo, BRANCH, change).await.unwrap().unwrap();
    let ids = [id.clone(), "1".repeat(40), "no id".to_owned()];
    let made = authors(&repo, ids.into()).await.unwrap();
    assert_eq!(made.keys().collect::<Vec<_>>(), [&id]);
    let Made {
        name,
        email,
        subject,
        ..
    } = &made[&id];
    let told = [name, email, subject].map(String::as_str);
    assert_eq!(told, ["Ann[31m", "ann@example.com", "Faster"]);
}
