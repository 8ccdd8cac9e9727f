//! The catalog repository on the hub's own disk: create, commit, read, compare. Commits are compare-and-set on the
//! branch, so they live beside pushes that arrive at the same time. git2 blocks; every call here moves it to
//! the blocking pool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use git2::build::TreeUpdateBuilder;
use git2::{
    Commit, ErrorCode, FileMode, ObjectType, Oid, Repository, RepositoryInitOptions, Signature,
    Tree,
};
use tokio::sync::Mutex;

mod durable;
mod locks;
mod read;

pub use locks::{Lock, locks, unlock};
pub use read::{
    Changed, Made, authors, below, branches, changed, contains, files, has_directory, has_same,
    head, held, includes, is_as, just_so, may_have, names, signed_head,
};

/// Paths (relative, `/`) and contents.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The branch of the built-in catalog.
pub const BRANCH: &str = "main";

/// Tries against pushes that move the branch in between.
const TRIES: u32 = 20;
/// This process makes one commit at a time: each is put on the disk before the branch moves, and of several beside each other all but
/// one would do that in vain, time and again.
static TURN: Mutex<()> = Mutex::const_new(());

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    pub name: String,
    pub email: String,
}

impl Author {
    /// The hub itself.
    pub fn hub() -> Self {
        Self {
            name: "Linesman".to_owned(),
            email: "linesman@localhost".to_owned(),
        }
    }
}

/// A commit to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub files: Files,
    /// Leave files alone that are there already, whatever they hold.
    pub only_missing: bool,
    /// Paths of files that are to be there no more.
    pub gone: BTreeSet<String>,
    pub author: Author,
    pub message: String,
}

/// Who else may be at work in a repository that is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    Nobody,
    /// Other replicas of the hub, which take pushes.
    Replicas,
}

/// Makes the bare repository with `template` as first commit unless it is there. Safe to repeat after a crash
/// at any point: what was left half-made is finished, and locks of the dead process are removed.
pub async fn ensure(repo: &Path, template: &Files, others: Others) -> Result<()> {
    let (repo, files) = (repo.to_owned(), template.clone());
    blocking(move || {
        let git = opened(&repo, others)?;
        if tip(&git, BRANCH)?.is_none() {
            let change = Change {
                files,
                only_missing: true,
                gone: BTreeSet::new(),
                author: Author::hub(),
                message: "Start the catalog".to_owned(),
            };
            commit_once(&git, BRANCH, &change, |_| true)?;
        }
        Ok(())
    })
    .await
}

/// The same of one that was made before, in whose place no other is made; false = it is not there, or has no commit.
pub async fn reopen(repo: &Path, others: Others) -> Result<bool> {
    let repo = repo.to_owned();
    blocking(move || {
        let is_there = match std::fs::read_dir(&repo) {
            Ok(mut found) => found.next().is_some(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => return Err(error).with_context(|| format!("look at {}", repo.display())),
        };
        // Nothing is put where a clone is to go.
        Ok(is_there && tip(&opened(&repo, others)?, BRANCH)?.is_some())
    })
    .await
}

/// Whether the repository's own configuration says that the branch is meant to be where it is: `linesman.head`.
pub async fn is_meant(repo: &Path, branch: &str) -> Result<bool> {
    let (repo, branch) = (repo.to_owned(), branch.to_owned());
    blocking(move || {
        let git = open(&repo)?;
        let meant = git.config()?.get_string("linesman.head");
        let head = tip(&git, &branch)?.map(|commit| commit.id().to_string());
        Ok(head.is_some_and(|head| meant.is_ok_and(|meant| meant == head)))
    })
    .await
}

/// A bare repository, what was left half-made finished, and without the locks of a dead process.
fn opened(repo: &Path, others: Others) -> Result<Repository> {
    trust_owner();
    locks::clear(repo, others);
    let mut options = RepositoryInitOptions::new();
    options
        .bare(true)
        .mkpath(true)
        .external_template(false)
        .initial_head(BRANCH);
    let at = || format!("catalog repository {}", repo.display());
    Repository::init_opts(repo, &options).with_context(at)?;
    open(repo)
}

/// Commits on top of the branch as it is now; `None` where nothing changes. Answers the new commit's id.
pub async fn commit(repo: &Path, branch: &str, change: Change) -> Result<Option<String>> {
    commit_over(repo, branch, change, None).await
}

/// The same, where the branch then still has a file at `over`: what somebody took out meanwhile stays out.
pub async fn commit_over(
    repo: &Path,
    branch: &str,
    change: Change,
    over: Option<&str>,
) -> Result<Option<String>> {
    let over = over.map(PathBuf::from);
    commit_while(repo, branch, change, move |tree| {
        let there = |over: &Path| tree.is_some_and(|tree| blob_at(tree, over).is_some());
        over.as_deref().is_none_or(there)
    })
    .await
}

/// The same, where the branch then still has these files just so: what somebody changed meanwhile stays as they made it.
pub async fn commit_instead(
    repo: &Path,
    branch: &str,
    change: Change,
    of: &Files,
) -> Result<Option<String>> {
    let mut held = Vec::new();
    for (path, content) in of {
        let id = Oid::hash_object(ObjectType::Blob, content)?;
        held.push((PathBuf::from(path), id));
    }
    commit_while(repo, branch, change, move |tree| {
        let same =
            |(path, id): &(PathBuf, Oid)| tree.is_some_and(|tree| blob_at(tree, path) == Some(*id));
        held.iter().all(same)
    })
    .await
}

/// The same, where this still holds of the branch's tree then; None = it has no commit yet.
async fn commit_while(
    repo: &Path,
    branch: &str,
    change: Change,
    holds: impl Fn(Option<&Tree<'_>>) -> bool + Send + 'static,
) -> Result<Option<String>> {
    let (repo, branch) = (repo.to_owned(), branch.to_owned());
    let turn = TURN.lock().await;
    blocking(move || {
        // Until it is over, also where nobody waits for it any more.
        let _turn = turn;
        let git = open(&repo)?;
        for attempt in 1..=TRIES {
            match commit_once(&git, &branch, &change, &holds) {
                Ok(id) => return Ok(id.map(|id| id.to_string())),
                Err(e) if moved(&e) && attempt < TRIES => {
                    std::thread::sleep(Duration::from_millis(5 * u64::from(attempt)));
                }
                Err(e) => return Err(e).context("commit to the catalog"),
            }
        }
        bail!("the catalog's branch {branch} kept moving; try again")
    })
    .await
}

/// Commits on a branch of its own, on top of `base`: anew on top of that whenever it is asked for. `None` where the base
/// has it all: what was proposed before would undo that, and is withdrawn.
pub async fn propose(
    repo: &Path,
    base: &str,
    branch: &str,
    change: Change,
) -> Result<Option<String>> {
    let (repo, base, branch) = (repo.to_owned(), base.to_owned(), branch.to_owned());
    blocking(move || {
        let git = open(&repo)?;
        let doing = "propose a change of the catalog";
        let made = made_on(&git, tip(&git, &base)?.as_ref(), &change).context(doing)?;
        match made {
            Some(id) => {
                let name = reference(&branch);
                git.reference(&name, id, true, &change.message)?;
                durable::keep_reference(&git, &name)?;
            }
            None => drop_branch(&git, &branch)?,
        }
        Ok(made.map(|id| id.to_string()))
    })
    .await
}

/// Takes a proposal back, where there is one: nobody is to merge it any more.
pub async fn withdraw(repo: &Path, branch: &str) -> Result<()> {
    let (repo, branch) = (repo.to_owned(), branch.to_owned());
    blocking(move || drop_branch(&open(&repo)?, &branch)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| anyhow!("git task ended: {e}"))?
}

fn open(repo: &Path) -> Result<Repository> {
    trust_owner();
    Repository::open_bare(repo)
        .with_context(|| format!("open the catalog repository {}", repo.display()))
}

/// Opens repositories of other uids too: a volume that was restored or is shared belongs to another one. The
/// directory is the operator's own choice, its configuration is ours, and hooks are never run.
fn trust_owner() {
    static ONCE: Once = Once::new();
    #[expect(
        unsafe_code,
        reason = "a process-wide switch of libgit2, set once before the first repository is opened"
    )]
    ONCE.call_once(|| {
        // SAFETY: libgit2 asks that no other thread changes options at the same time; this is the only place.
        unsafe { git2::opts::set_verify_owner_validation(false) }.ok();
    });
}

fn tip<'a>(git: &'a Repository, branch: &str) -> Result<Option<Commit<'a>>> {
    match git.find_reference(&reference(branch)) {
        Ok(found) => Ok(Some(found.peel_to_commit()?)),
        Err(e) if e.code() == ErrorCode::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("read branch {branch}")),
    }
}

fn drop_branch(git: &Repository, branch: &str) -> Result<()> {
    let doing = || format!("delete branch {branch}");
    match git.find_reference(&reference(branch)) {
        Ok(mut found) => found.delete().with_context(doing),
        Err(e) if e.code() == ErrorCode::NotFound => Ok(()),
        Err(e) => Err(e).with_context(doing),
    }
}

fn blob_at(tree: &Tree<'_>, path: &Path) -> Option<Oid> {
    let entry = tree.get_path(path).ok()?;
    (entry.kind() == Some(ObjectType::Blob)).then(|| entry.id())
}

fn reference(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

fn commit_once(
    git: &Repository,
    branch: &str,
    change: &Change,
    holds: impl Fn(Option<&Tree<'_>>) -> bool,
) -> Result<Option<Oid>> {
    let parent = tip(git, branch)?;
    let tree = parent.as_ref().map(Commit::tree).transpose()?;
    if !holds(tree.as_ref()) {
        return Ok(None);
    }
    let Some(id) = made_on(git, parent.as_ref(), change)? else {
        return Ok(None);
    };
    let name = reference(branch);
    // The branch moves only if it still is where it was read.
    match &parent {
        Some(parent) => git.reference_matching(&name, id, true, parent.id(), &change.message)?,
        None => git.reference(&name, id, false, &change.message)?,
    };
    durable::keep_reference(git, &name)?;
    Ok(Some(id))
}

/// The commit alone: no branch points to it yet. `None` where nothing changes.
fn made_on(git: &Repository, parent: Option<&Commit<'_>>, change: &Change) -> Result<Option<Oid>> {
    let old = parent.map(Commit::tree).transpose()?;
    let tree = write_tree(git, old.as_ref(), change)?;
    if old.as_ref().map(Tree::id) == Some(tree) {
        return Ok(None);
    }
    let Author { name, email } = &change.author;
    let at = git2::Time::new(crate::clock::now().unix_timestamp(), 0);
    let author = Signature::new(name, email, &at)?;
    let parents: Vec<&Commit<'_>> = parent.into_iter().collect();
    let tree = git.find_tree(tree)?;
    let id = git.commit(None, &author, &author, &change.message, &tree, &parents)?;
    let paths = change.files.keys().chain(&change.gone);
    durable::keep(git, &durable::objects(id, &tree, paths))?;
    Ok(Some(id))
}

fn write_tree(git: &Repository, old: Option<&Tree<'_>>, change: &Change) -> Result<Oid> {
    let empty = git.treebuilder(None)?.write()?;
    let base = match old {
        Some(tree) => tree.clone(),
        None => git.find_tree(empty)?,
    };
    let mut update = TreeUpdateBuilder::new();
    for (path, content) in &change.files {
        let there = base.get_path(Path::new(path)).ok();
        if change.only_missing && there.is_some() {
            continue;
        }
        update.upsert(path.as_str(), git.blob(content)?, FileMode::Blob);
    }
    for path in &change.gone {
        if base.get_path(Path::new(path)).is_ok() {
            update.remove(path.as_str());
        }
    }
    Ok(update.create_updated(git, &base)?)
}

fn moved(error: &anyhow::Error) -> bool {
    error.downcast_ref::<git2::Error>().is_some_and(|e| {
        matches!(
            e.code(),
            ErrorCode::Modified | ErrorCode::Exists | ErrorCode::Locked
        )
    })
}

#[cfg(test)]
mod tests;
