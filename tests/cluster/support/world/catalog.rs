//! The catalog: its head at the hub, a clone, and commits that are pushed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::World;
use crate::support::openpgp::Pgp;
use crate::support::place::{output, run};

impl World {
    /// The commit id of the catalog's branch, read from the hub's repository.
    pub(crate) fn head(&self) -> Result<String, String> {
        let repository = self.hub.data().join("catalog.git");
        let output = output(Command::new("git").arg("-C").arg(repository).args([
            "-c",
            "safe.directory=*",
            "rev-parse",
            "refs/heads/main",
        ]));
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// A clone of the catalog that can push, below the world's directory.
    pub(crate) fn clone_catalog(&self) -> PathBuf {
        let clone = self.directory.join("catalog");
        if !clone.exists() {
            // The hub's name exists only inside the lab.
            let (host, port) = (&self.place.host, self.hub.git_port());
            let wrapper = self.directory.join("bin");
            fs::create_dir_all(&wrapper).unwrap();
            let ssh = wrapper.join("ssh");
            fs::write(&ssh, format!("#!/bin/sh\nexec /usr/bin/ssh -o HostName={host} -o 'HostKeyAlias=[hub.lab.test]:{port}' -o CheckHostIP=no \"$@\"\n")).unwrap();
            run(Command::new("chmod").arg("755").arg(&ssh));
            let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", wrapper.display());
            let mut command = self.hub.cli(&["catalog", "clone", clone.to_str().unwrap()]);
            run(command.env("PATH", &path));
        }
        clone
    }

    /// Commits one file of the catalog and pushes; returns the commit's id.
    pub(crate) fn push(&self, file: &str, content: &str) -> String {
        self.push_all(&[(file.to_owned(), content.to_owned())])
    }

    /// The same with several files in one commit.
    pub(crate) fn push_all(&self, files: &[(String, String)]) -> String {
        self.push_by(files, None)
    }

    /// A commit of one file, signed.
    pub(crate) fn push_signed(&self, file: &str, content: &str, by: &Pgp) -> String {
        self.push_by(&[(file.to_owned(), content.to_owned())], Some(by))
    }

    fn push_by(&self, files: &[(String, String)], by: Option<&Pgp>) -> String {
        let clone = self.clone_catalog();
        let path = format!(
            "{}:/usr/bin:/bin:/usr/sbin:/sbin",
            self.directory.join("bin").display()
        );
        let git = |args: &[&str]| {
            run(Command::new("git")
                .arg("-C")
                .arg(&clone)
                .args(args)
                .env("PATH", &path))
        };
        git(&["pull", "--quiet", "--rebase"]);
        for (file, content) in files {
            fs::create_dir_all(clone.join(file).parent().unwrap()).unwrap();
            fs::write(clone.join(file), content).unwrap();
        }
        let (first, _) = files.first().unwrap();
        git(&["add", "--all"]);
        git(&[
            "commit",
            "--quiet",
            "--allow-empty",
            "--message",
            &format!("Change {first}"),
        ]);
        if let Some(by) = by {
            let plain = git(&["cat-file", "commit", "HEAD"]);
            let signature = by.sign(plain.as_bytes());
            let git2 = git2::Repository::open(&clone).unwrap();
            let signed = git2.commit_signed(&plain, &signature, None).unwrap();
            git(&["reset", "--quiet", "--soft", &signed.to_string()]);
        }
        git(&["push", "--quiet"]);
        if !self.hub.runs() {
            self.look();
        }
        git(&["rev-parse", "HEAD"]).trim().to_owned()
    }
}
