//! What the hub commits is on the disk before a branch leads to it, as what Git takes in by a push is. libgit2 leaves that to the
//! system, and a power cut may take an object and leave the branch: neither the hub nor an engine could read the catalog then.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result};
use git2::{Oid, Repository, Tree};

/// The objects of a commit, of whose tree these paths are new. What else is in it was there before.
pub(super) fn objects<'a>(
    commit: Oid,
    tree: &Tree<'_>,
    paths: impl Iterator<Item = &'a String>,
) -> BTreeSet<Oid> {
    let mut made = BTreeSet::from([commit, tree.id()]);
    for path in paths {
        // With the directories that it is in.
        let entries = Path::new(path).ancestors();
        made.extend(entries.filter_map(|at| Some(tree.get_path(at).ok()?.id())));
    }
    made
}

/// Puts them on the disk, with their names. One that is no file of its own is in a pack, and was there before.
pub(super) fn keep(git: &Repository, objects: &BTreeSet<Oid>) -> Result<()> {
    let root = git.path().join("objects");
    let mut folders = BTreeSet::new();
    for object in objects {
        let name = object.to_string();
        let (folder, file) = name.split_at(2);
        let folder = root.join(folder);
        if sync(&folder.join(file))? {
            folders.insert(folder);
        }
    }
    folders.insert(root);
    for folder in folders {
        keep_names(&folder);
    }
    Ok(())
}

/// The same of a reference that was moved.
pub(super) fn keep_reference(git: &Repository, name: &str) -> Result<()> {
    let path = git.path().join(name);
    sync(&path)?;
    if let Some(folder) = path.parent() {
        keep_names(folder);
    }
    Ok(())
}

/// False = it is not there.
fn sync(path: &Path) -> Result<bool> {
    match File::open(path).and_then(|file| file.sync_all()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("put {} on the disk", path.display())),
    }
}

/// The names in a directory. Some file systems refuse that, and keep them by themselves.
fn keep_names(folder: &Path) {
    File::open(folder).and_then(|folder| folder.sync_all()).ok();
}

#[cfg(test)]
mod tests {
    use git2::Signature;
    use git2::build::TreeUpdateBuilder;

    use super::*;

    /// The objects that are files of their own.
    fn loose(root: &Path) -> BTreeSet<Oid> {
        let mut found = BTreeSet::new();
        for folder in std::fs::read_dir(root.join("objects")).unwrap() {
            let folder = folder.unwrap();
            // Beside them are `info` and `pack`.
            if folder.file_name().len() != 2 {
                continue;
            }
            for file in std::fs::read_dir(folder.path()).unwrap() {
                let names = [folder.file_name(), file.unwrap().file_name()];
                let name = names.map(|name| name.to_str().unwrap().to_owned());
                found.insert(Oid::from_str(&name.concat()).unwrap());
            }
        }
        found
    }

    /// Adds a file at this path; the new commit with its tree.
    fn commit<'a>(git: &'a Repository, path: &str) -> (Oid, Tree<'a>) {
        let parent = git.find_reference("refs/heads/main").ok();
        let parent = parent.map(|head| head.peel_to_commit().unwrap());
        let empty = git.treebuilder(None).unwrap().write().unwrap();
        let base = match &parent {
            Some(parent) => parent.tree().unwrap(),
            None => git.find_tree(empty).unwrap(),
        };
        let mut update = TreeUpdateBuilder::new();
        let blob = git.blob(path.as_bytes()).unwrap();
        update.upsert(path, blob, git2::FileMode::Blob);
        let tree = update.create_updated(git, &base).unwrap();
        let tree = git.find_tree(tree).unwrap();
        let by = Signature::new("a", "a@b", &git2::Time::new(0, 0)).unwrap();
        let parents: Vec<_> = parent.iter().collect();
        let made = git.commit(Some("refs/heads/main"), &by, &by, "m", &tree, &parents);
        (made.unwrap(), tree)
    }

    #[test]
    fn each_object_of_a_commit_is_put_on_the_disk() {
        let name = crate::keys::hex(&crate::clock::random::<8>());
        let root = std::env::temp_dir().join(format!("linesman-durable-{name}"));
        let git = Repository::init_bare(&root).unwrap();
        commit(&git, "clusters/eu1/a.yaml");
        let before = loose(&root);
        let path = "clusters/us1/apps/b.yaml".to_owned();
        let (made, tree) = commit(&git, &path);
        let found = objects(made, &tree, [&path].into_iter());
        let new: BTreeSet<Oid> = loose(&root).difference(&before).copied().collect();
        // The commit, the file, and a tree for each directory and the root.
        assert_eq!((new.len(), &found), (6, &new));
        keep(&git, &found).unwrap();
        keep_reference(&git, "refs/heads/main").unwrap();
        std::fs::remove_dir_all(&root).unwrap();
    }
}
