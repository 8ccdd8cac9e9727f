//! The hub's routes about Git hosts.

use super::{Client, Error};
use crate::wire::api::{AcceptHostKey, DropHostKey, RotateHostKey, ToldGitHost};

impl Client {
    pub async fn githosts(&self) -> Result<Vec<ToldGitHost>, Error> {
        self.list("list Git hosts", &["v1", "githosts"], &[], usize::MAX)
            .await
    }

    pub async fn githost(&self, name: &str) -> Result<ToldGitHost, Error> {
        let operation = format!("show Git host {name}");
        self.get(&operation, &["v1", "githosts", name], &[]).await
    }

    pub async fn accept_host_key(
        &self,
        name: &str,
        asked: &AcceptHostKey,
    ) -> Result<ToldGitHost, Error> {
        let operation = format!("accept a host key of Git host {name}");
        let path = ["v1", "githosts", name, "host-keys"];
        self.write(&operation, &path, asked).await
    }

    pub async fn drop_host_key(&self, name: &str, fingerprint: &str) -> Result<ToldGitHost, Error> {
        let operation = format!("drop a host key of Git host {name}");
        let path = ["v1", "githosts", name, "host-keys", "drop"];
        let fingerprint = fingerprint.to_owned();
        self.write(&operation, &path, &DropHostKey { fingerprint })
            .await
    }

    pub async fn rotate_host_key(
        &self,
        name: &str,
        asked: RotateHostKey,
    ) -> Result<ToldGitHost, Error> {
        let operation = format!("rotate the host key of Git host {name}");
        let path = ["v1", "githosts", name, "rotate-host-key"];
        self.write(&operation, &path, &asked).await
    }
}
