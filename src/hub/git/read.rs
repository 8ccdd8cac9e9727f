//! What the catalog repository says: its head, its files, what changed and who made it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use git2::{
    DiffOptions, ErrorCode, ObjectType, Oid, Repository, Tree, TreeWalkMode, TreeWalkResult,
};

use super::{Files, blob_at, blocking, open, reference, tip};
use crate::hub::signers::Head;

/// Changed paths beyond this many are not listed.
const MAX_PATHS: usize = 10_000;
/// Files that are read at once may have this many bytes together.
const MAX_READ: usize = 64 << 20;
/// Of an author or a subject, so many characters are told.
const MAX_WORDS: usize = 200;

/// By whom, when and why a commit was made, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub name: String,
    pub email: String,
    /// Unix seconds.
    pub at: i64,
    /// The first line of the message.
    pub subject: String,
}

/// What lies between two commits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    pub paths: Vec<String>,
    /// There were more paths than are listed.
    pub truncated: bool,
}

/// The branch's head and the text of its signature, if it has one.
pub async fn signed_head(repo: &Path, branch: &str) -> Result<Option<Head>> {
    let (repo, branch) = (repo.to_owned(), branch.to_owned());
    blocking(move || {
        let git = open(&repo)?;
        let Some(id) = tip(&git, &branch)?.map(|c| c.id()) else {
            return Ok(None);
        };
        let signature = match git.extract_signature(&id, None) {
            Ok((signature, _)) => Some(String::from_utf8_lossy(&signature).into_owned()),
            Err(e) if e.code() == ErrorCode::NotFound => None,
            Err(e) => return Err(e).context("read the signature of the catalog's head"),
        };
        Ok(Some(Head {
            commit: id.to_string(),
            signature,
        }))
    })
    .await
}

/// The commit that the branch points to.
pub async fn head(repo: &Path, branch: &str) -> Result<Option<String>> {
    let (repo, branch) = (repo.to_owned(), branch.to_owned());
    blocking(move || Ok(tip(&open(&repo)?, &branch)?.map(|c| c.id().to_string()))).await
}

/// All files of the branch; none where it has no commit.
pub async fn files(repo: &Path, branch: &str) -> Result<Files> {
    let (repo, branch) = (repo.to_owned(), branch.to_owned());
    blocking(move || {
        let git = open(&repo)?;
        match tip(&git, &branch)? {
            Some(commit) => read_tree(&git, &commit.tree()?),
            None => Ok(Files::new()),
        }
    })
    .await
}

/// The files below these directories of the branch; of one that it does not have, none.
pub async fn below(repo: &Path, branch: &str, directories: Vec<String>) -> Result<Files> {
    let (repo, branch) = (repo.to_owned(), branch.to_owned());
    blocking(move || {
        let git = open(&repo)?;
        let mut files = Files::new();
        let Some(head) = tip(&git, &branch)? else {
            return Ok(files);
        };
        let root = head.tree()?;
        for directory in directories {
            let entry = root.get_path(Path::new(&directory));
            let Ok(tree) = entry.and_then(|entry| git.find_tree(entry.id())) else {
                continue;
            };
            let found = read_tree(&git, &tree);
            let found = found.with_context(|| format!("read {directory} of the catalog"))?;
            let found = found.into_iter();
            files.extend(found.map(|(path, content)| (format!("{directory}/{path}"), content)));
        }
        Ok(files)
    })
    .await
}

/// Whether the branch has this directory.
pub async fn has_directory(repo: &Path, branch: &str, path: &str) -> Result<bool> {
    let (repo, branch, path) = (repo.to_owned(), branch.to_owned(), PathBuf::from(path));
    blocking(move || {
        let git = open(&repo)?;
        let Some(head) = tip(&git, &branch)? else {
            return Ok(false);
        };
        let found = head.tree()?.get_path(&path);
        Ok(found.is_ok_and(|entry| entry.kind() == Some(ObjectType::Tree)))
    })
    .await
}

/// Which of these paths the branch has a file at.
pub async fn held(repo: &Path, branch: &str, paths: BTreeSet<String>) -> Result<BTreeSet<String>> {
    let (repo, branch) = (repo.to_owned(), branch.to_owned());
    blocking(move || {
        let git = open(&repo)?;
        let Some(head) = tip(&git, &branch)? else {
            return Ok(BTreeSet::new());
        };
        let tree = head.tree()?;
        let is_file = |path: &String| blob_at(&tree, Path::new(path)).is_some();
        Ok(paths.into_iter().filter(is_file).collect())
    })
    .await
}

/// Whether the branch has these files just so, and none at the paths that are to be gone.
pub async fn is_as(
    repo: &Path,
    branch: &str,
    files: Files,
    gone: BTreeSet<String>,
) -> Result<bool> {
    let (repo, branch) = (repo.to_owned(), branch.to_owned());
    blocking(move || {
        let git = open(&repo)?;
        let Some(head) = tip(&git, &branch)? else {
            return Ok(false);
        };
        let head = head.tree()?;
        for (path, content) in &files {
            let id = Oid::hash_object(ObjectType::Blob, content)?;
            if blob_at(&head, Path::new(path)) != Some(id) {
                return Ok(false);
            }
        }
        let left = |path: &String| blob_at(&head, Path::new(path)).is_some();
        Ok(!gone.iter().any(left))
    })
    .await
}

/// Which of these files the branch has just so.
pub async fn just_so(repo: &Path, branch: &str, files: Files) -> Result<BTreeSet<String>> {
    let (repo, branch) = (repo.to_owned(), branch.to_owned());
    blocking(move || {
        let git = open(&repo)?;
        let mut same = BTreeSet::new();
        let Some(head) = tip(&git, &branch)? else {
            return Ok(same);
        };
        let head = head.tree()?;
        for (path, content) in files {
            let id = Oid::hash_object(ObjectType::Blob, &content)?;
            if blob_at(&head, Path::new(&path)) == Some(id) {
                same.insert(path);
            }
        }
        Ok(same)
    })
    .await
}

/// Whether this commit has the same files at these paths as the branch, or none where that has none.
pub async fn has_same(
    repo: &Path,
    branch: &str,
    commit: &str,
    paths: BTreeSet<String>,
) -> Result<bool> {
    let (repo, branch) = (repo.to_owned(), branch.to_owned());
    let commit = Oid::from_str(commit)?;
    blocking(move || {
        let git = open(&repo)?;
        let (Some(head), Ok(commit)) = (tip(&git, &branch)?, git.find_commit(commit)) else {
            return Ok(false);
        };
        let (head, tree) = (head.tree()?, commit.tree()?);
        let same = |path: &String| {
            let path = Path::new(path);
            blob_at(&head, path) == blob_at(&tree, path)
        };
        Ok(paths.iter().all(same))
    })
    .await
}

/// The names of what lies in a directory of the branch; none where it has no such directory.
pub async fn names(repo: &Path, branch: &str, directory: &str) -> Result<BTreeSet<String>> {
    let (repo, branch) = (repo.to_owned(), branch.to_owned());
    let directory = PathBuf::from(directory);
    blocking(move || {
        let git = open(&repo)?;
        let Some(head) = tip(&git, &branch)? else {
            return Ok(BTreeSet::new());
        };
        let Ok(entry) = head.tree()?.get_path(&directory) else {
            return Ok(BTreeSet::new());
        };
        let Ok(tree) = git.find_tree(entry.id()) else {
            return Ok(BTreeSet::new());
        };
        let names = tree.iter().filter_map(|e| Some(e.name().ok()?.to_owned()));
        Ok(names.collect())
    })
    .await
}

/// What the names of the branches are behind this, of those that begin with it.
pub async fn branches(repo: &Path, prefix: &str) -> Result<BTreeSet<String>> {
    let (repo, prefix) = (repo.to_owned(), reference(prefix));
    blocking(move || {
        let git = open(&repo)?;
        let mut found = BTreeSet::new();
        for branch in git.references_glob(&format!("{prefix}*"))? {
            let branch = branch?;
            // A name that is no UTF-8 is none of ours.
            let name = branch.name().unwrap_or_default();
            found.extend(name.strip_prefix(&prefix).map(str::to_owned));
        }
        Ok(found)
    })
    .await
}

/// Whether `commit` is the branch's head or one of its ancestors.
pub async fn contains(repo: &Path, branch: &str, commit: &str) -> Result<bool> {
    let (repo, branch, commit) = (repo.to_owned(), branch.to_owned(), Oid::from_str(commit)?);
    blocking(move || {
        let git = open(&repo)?;
        let Some(head) = tip(&git, &branch)? else {
            return Ok(false);
        };
        Ok(head.id() == commit
            || git.find_commit(commit).is_ok() && git.graph_descendant_of(head.id(), commit)?)
    })
    .await
}

/// Whether the repository has this commit, be it on no branch; one whose history was cut off may have had any.
pub async fn may_have(repo: &Path, commit: &str) -> Result<bool> {
    let (repo, commit) = (repo.to_owned(), Oid::from_str(commit)?);
    blocking(move || {
        let git = open(&repo)?;
        Ok(git.find_commit(commit).is_ok() || git.is_shallow())
    })
    .await
}

/// Whether `commit` is `ancestor` or comes after it; a commit that the repository does not have does not.
pub async fn includes(repo: &Path, commit: &str, ancestor: &str) -> Result<bool> {
    let (repo, commit, ancestor) = (
        repo.to_owned(),
        Oid::from_str(commit)?,
        Oid::from_str(ancestor)?,
    );
    blocking(move || {
        let git = open(&repo)?;
        Ok(commit == ancestor
            || git.find_commit(commit).is_ok() && git.graph_descendant_of(commit, ancestor)?)
    })
    .await
}

/// The paths that differ between two commits; all of `new` where `old` is `None`.
pub async fn changed(repo: &Path, old: Option<&str>, new: &str) -> Result<Changed> {
    let repo = repo.to_owned();
    let old = old.map(Oid::from_str).transpose()?;
    let new = Oid::from_str(new)?;
    blocking(move || {
        let git = open(&repo)?;
        let tree = |id: Oid| git.find_commit(id)?.tree();
        let old = old.map(tree).transpose()?;
        let mut options = DiffOptions::new();
        options.skip_binary_check(true).ignore_submodules(true);
        let diff = git.diff_tree_to_tree(old.as_ref(), Some(&tree(new)?), Some(&mut options))?;
        let mut changed = Changed::default();
        for delta in diff.deltas() {
            let path = delta.new_file().path().or_else(|| delta.old_file().path());
            let Some(path) = path.and_then(Path::to_str) else {
                // A name that is no UTF-8 is nobody's file in a catalog, and still a change.
                changed.truncated = true;
                continue;
            };
            if changed.paths.len() == MAX_PATHS {
                changed.truncated = true;
                break;
            }
            changed.paths.push(path.to_owned());
        }
        Ok(changed)
    })
    .await
}

/// Who made these commits, as far as the repository has them.
pub async fn authors(repo: &Path, ids: BTreeSet<String>) -> Result<BTreeMap<String, Made>> {
    let repo = repo.to_owned();
    blocking(move || {
        let git = open(&repo)?;
        let made = |id: String| {
            let commit = git.find_commit(Oid::from_str(&id).ok()?).ok()?;
            let author = commit.author();
            let said = |text: Option<&str>| printable(text.unwrap_or_default());
            let made = Made {
                name: said(author.name().ok()),
                email: said(author.email().ok()),
                at: author.when().seconds(),
                subject: said(commit.summary().ok().flatten()),
            };
            Some((id, made))
        };
        Ok(ids.into_iter().filter_map(made).collect())
    })
    .await
}

/// Anybody who may push chooses these words, and they are shown in terminals.
fn printable(text: &str) -> String {
    let kept = text.chars().filter(|c| !c.is_control());
    kept.take(MAX_WORDS).collect()
}

fn read_tree(git: &Repository, tree: &Tree<'_>) -> Result<Files> {
    read_at_most(MAX_READ, git, tree)
}

fn read_at_most(most: usize, git: &Repository, tree: &Tree<'_>) -> Result<Files> {
    let objects = git.odb()?;
    let mut files = Files::new();
    let mut size: usize = 0;
    let walked = tree.walk(TreeWalkMode::PreOrder, |root, entry| {
        if entry.kind() != Some(ObjectType::Blob) {
            return TreeWalkResult::Ok;
        }
        // What is too large is not read first.
        let (Ok(name), Ok((length, _))) = (entry.name(), objects.read_header(entry.id())) else {
            return TreeWalkResult::Ok;
        };
        size = size.saturating_add(length);
        if size > most {
            return TreeWalkResult::Abort;
        }
        if let Ok(blob) = git.find_blob(entry.id()) {
            files.insert(format!("{root}{name}"), blob.content().to_vec());
        }
        TreeWalkResult::Ok
    });
    ensure!(
        size <= most,
        "its files have more than {most} bytes together, and the hub reads no more: keep large ones in another directory"
    );
    walked?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_too_large_together_are_refused_in_words() {
        let name = crate::keys::hex(&crate::clock::random::<8>());
        let root = std::env::temp_dir().join(format!("linesman-read-{name}"));
        let git = Repository::init_bare(&root).unwrap();
        let mut tree = git.treebuilder(None).unwrap();
        let files: Files = [("a", "12345"), ("b", "678")]
            .map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()))
            .into();
        for (name, content) in &files {
            let mode = git2::FileMode::Blob.into();
            let blob = git.blob(content).unwrap();
            tree.insert(name.as_str(), blob, mode).unwrap();
        }
        let tree = git.find_tree(tree.write().unwrap()).unwrap();
        assert_eq!(read_at_most(8, &git, &tree).unwrap(), files);
        let refused = read_at_most(7, &git, &tree).unwrap_err().to_string();
        assert!(refused.contains("more than 7 bytes"), "{refused}");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
