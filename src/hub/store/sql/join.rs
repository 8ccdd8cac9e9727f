//! Join tokens, and the one transaction that redeems them.

use sqlx::FromRow;
use time::OffsetDateTime;

use super::{
    Connection, Database, clusters, corrupt, db, from_ms, hash32, keys, reports, to_json, to_ms,
};
use crate::hub::registration::{self, Claim, Deploy, Known, Redeemed, Refusal, Verdict};
use crate::hub::store::records::Redemption;
use crate::hub::store::records::adoption::adoption;
use crate::hub::store::{Cluster, JoinToken, KeyKind, Result, StoreError, TokenKind};

/// Join tokens of one cluster that are known: the newest of them.
const KNOWN: i64 = 50;

#[derive(FromRow)]
struct Row {
    id: String,
    cluster_id: String,
    hash: Vec<u8>,
    kind: String,
    new_cluster: bool,
    adoption: String,
    issued_by: String,
    expires_at: i64,
    redeemed_at: Option<i64>,
    redeemed_fingerprint: Option<String>,
    redeemed_incarnation: Option<String>,
    redeemed_addr: Option<String>,
    revoked_at: Option<i64>,
    created_at: i64,
}

impl Row {
    fn token(self) -> Result<JoinToken> {
        const DOING: &str = "read a join token";
        Ok(JoinToken {
            hash: hash32(DOING, &self.hash)?,
            kind: match self.kind.as_str() {
                "readopt" => TokenKind::Readopt,
                _ => TokenKind::Join,
            },
            new_cluster: self.new_cluster,
            adoption: adoption(&self.adoption).map_err(corrupt(DOING))?,
            issued_by: self.issued_by,
            expires_at: from_ms(self.expires_at),
            redeemed: self.redeemed_at.map(|at| Redemption {
                at: from_ms(at),
                fingerprint: self.redeemed_fingerprint.unwrap_or_default(),
                incarnation: self.redeemed_incarnation.unwrap_or_default(),
                addr: self.redeemed_addr.unwrap_or_default(),
            }),
            revoked_at: self.revoked_at.map(from_ms),
            created_at: from_ms(self.created_at),
            id: self.id,
            cluster_id: self.cluster_id,
        })
    }
}

async fn token(connection: &mut Connection, id: &str) -> Result<Option<JoinToken>> {
    let row: Option<Row> = sqlx::query_as("SELECT * FROM join_token WHERE id = $1")
        .bind(id)
        .fetch_optional(connection)
        .await
        .map_err(db("read a join token"))?;
    row.map(Row::token).transpose()
}

async fn cluster(connection: &mut Connection, id: &str) -> Result<Option<Cluster>> {
    let row: Option<clusters::Row> = sqlx::query_as("SELECT * FROM cluster WHERE id = $1")
        .bind(id)
        .fetch_optional(connection)
        .await
        .map_err(db("read a cluster"))?;
    row.map(clusters::Row::cluster).transpose()
}

impl Database {
    pub async fn issue_join_token(&self, token: JoinToken) -> Result<()> {
        const DOING: &str = "issue a join token";
        const FORGET: &str = "DELETE FROM join_token WHERE cluster_id = $1 AND id <> $2 AND id NOT IN
             (SELECT id FROM join_token WHERE cluster_id = $1 AND id <> $2 ORDER BY created_at DESC, id DESC LIMIT $3)";
        let mut write = self.begin(DOING).await?;
        sqlx::query(
            "UPDATE join_token SET revoked_at = $1 WHERE cluster_id = $2 AND redeemed_at IS NULL AND revoked_at IS NULL",
        )
        .bind(to_ms(token.created_at))
        .bind(&token.cluster_id)
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        let kind = match token.kind {
            TokenKind::Join => "join",
            TokenKind::Readopt => "readopt",
        };
        sqlx::query(
            "INSERT INTO join_token (id, cluster_id, hash, kind, new_cluster, adoption, issued_by, expires_at, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(&token.id)
        .bind(&token.cluster_id)
        .bind(token.hash.as_slice())
        .bind(kind)
        .bind(token.new_cluster)
        .bind(to_json(&token.adoption))
        .bind(&token.issued_by)
        .bind(to_ms(token.expires_at))
        .bind(to_ms(token.created_at))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        // The others are over, each by the one behind it.
        sqlx::query(FORGET)
            .bind(&token.cluster_id)
            .bind(&token.id)
            .bind(KNOWN - 1)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        write.commit(DOING).await
    }

    pub async fn join_token(&self, id: &str) -> Result<Option<JoinToken>> {
        let mut reader = self
            .readers
            .acquire()
            .await
            .map_err(db("read a join token"))?;
        token(&mut reader, id).await
    }

    pub async fn end_conflicts(&self, before: OffsetDateTime) -> Result<u64> {
        const OVER: &str = "DELETE FROM condition WHERE type = 'JoinConflict' AND observed_at < $1 AND EXISTS
             (SELECT 1 FROM cluster_key k WHERE k.cluster_id = condition.cluster_id AND k.kind = 'identity'
                AND k.state IN ('active', 'retiring'))";
        let over = sqlx::query(OVER).bind(to_ms(before));
        self.change("end conflicts that are over", over).await
    }

    pub async fn redeem(&self, claim: Claim, now: OffsetDateTime) -> Result<Redeemed> {
        const DOING: &str = "redeem a join token";
        let mut write = self.begin(DOING).await?;
        let found = token(&mut write.tx, &claim.token.id).await?;
        let owner = match &found {
            Some(token) => cluster(&mut write.tx, &token.cluster_id).await?,
            None => None,
        };
        let identity = keys::by_fingerprint(&mut write.tx, &claim.identity.fingerprint()).await?;
        let deploy = keys::by_fingerprint(&mut write.tx, &claim.deploy.fingerprint()).await?;
        let known = Known {
            token: found.as_ref(),
            cluster: owner.as_ref(),
            identity: identity.as_ref(),
            deploy: deploy.as_ref(),
        };
        let verdict = registration::redeem(now, &claim, known);
        match (verdict, found, owner) {
            (Verdict::Bind { replace, deploy }, Some(token), Some(owner)) => {
                let bind = Bind {
                    claim: &claim,
                    token: &token,
                    cluster: &owner,
                    deploy,
                    now,
                };
                bind.run(&mut write.tx, replace).await?;
                let owner = cluster(&mut write.tx, &owner.id).await?.unwrap_or(owner);
                write.commit(DOING).await?;
                Ok(bound(owner, false, deploy))
            }
            (Verdict::Repeat(deploy), Some(_), Some(owner)) => {
                if deploy == Deploy::Register {
                    // No token is spent for it: it counts like any other that an agent brings.
                    keys::make_room(&mut write.tx, &owner.id, KeyKind::Deploy).await?;
                    keys::put(&mut write.tx, &owner.id, KeyKind::Deploy, claim.deploy, now).await?;
                    write.commit(DOING).await?;
                }
                Ok(bound(owner, true, deploy))
            }
            (Verdict::Refuse(refusal), found, owner) => Ok(Redeemed::Refused {
                refusal,
                winner: found.and_then(|t| t.redeemed),
                cluster: owner
                    .filter(|_| refusal != Refusal::TokenInvalid)
                    .map(Box::new),
            }),
            // Not reached: a verdict other than a refusal needs token and cluster.
            (Verdict::Bind { .. } | Verdict::Repeat(_), _, _) => Ok(Redeemed::Refused {
                refusal: Refusal::TokenInvalid,
                winner: None,
                cluster: None,
            }),
        }
    }
}

fn bound(cluster: Cluster, repeated: bool, deploy: Deploy) -> Redeemed {
    Redeemed::Bound {
        cluster: Box::new(cluster),
        repeated,
        deploy,
    }
}

/// What a verdict to bind comes to in the tables.
struct Bind<'a> {
    claim: &'a Claim,
    token: &'a JoinToken,
    cluster: &'a Cluster,
    deploy: Deploy,
    now: OffsetDateTime,
}

impl Bind<'_> {
    async fn run(&self, connection: &mut Connection, replace: bool) -> Result<()> {
        self.spend(connection).await?;
        if replace {
            self.retire(connection).await?;
        }
        let id = &self.cluster.id;
        keys::put(
            connection,
            id,
            KeyKind::Identity,
            self.claim.identity,
            self.now,
        )
        .await?;
        if self.deploy != Deploy::InUse {
            keys::put(connection, id, KeyKind::Deploy, self.claim.deploy, self.now).await?;
        }
        self.note(connection).await?;
        reports::replace_facts(connection, id, &self.claim.facts, self.now).await
    }

    /// Nobody else can have spent it: this transaction holds the write lock since before it read the token.
    async fn spend(&self, connection: &mut Connection) -> Result<()> {
        const DOING: &str = "spend a join token";
        let done = sqlx::query(
            "UPDATE join_token SET redeemed_at = $1, redeemed_fingerprint = $2, redeemed_incarnation = $3, redeemed_addr = $4
             WHERE id = $5 AND redeemed_at IS NULL AND revoked_at IS NULL AND expires_at > $1",
        )
        .bind(to_ms(self.now))
        .bind(self.claim.identity.fingerprint())
        .bind(&self.claim.incarnation)
        .bind(&self.claim.addr)
        .bind(&self.token.id)
        .execute(connection)
        .await
        .map_err(db(DOING))?;
        if done.rows_affected() == 1 {
            Ok(())
        } else {
            Err(StoreError::Refused(
                "the token was spent meanwhile".to_owned(),
            ))
        }
    }

    /// The keys that the cluster had before end with the readoption, except those that come again.
    async fn retire(&self, connection: &mut Connection) -> Result<()> {
        sqlx::query(
            "UPDATE cluster_key SET state = 'revoked', updated_at = $1
             WHERE cluster_id = $2 AND fingerprint NOT IN ($3, $4)",
        )
        .bind(to_ms(self.now))
        .bind(&self.cluster.id)
        .bind(self.claim.identity.fingerprint())
        .bind(self.claim.deploy.fingerprint())
        .execute(&mut *connection)
        .await
        .map_err(db("retire a cluster's keys"))?;
        keys::forget_moves(connection, &self.cluster.id).await
    }

    async fn note(&self, connection: &mut Connection) -> Result<()> {
        const DOING: &str = "note a join";
        sqlx::query(
            "UPDATE cluster SET incarnation = $1, joined_at = coalesce(joined_at, $2), last_seen = $2, updated_at = $2,
               agent_version = $3, agent_image = $4, agent_arch = $5, adoption = $6, rev = rev + 1 WHERE id = $7",
        )
        .bind(&self.claim.incarnation)
        .bind(to_ms(self.now))
        .bind(&self.claim.agent.version)
        .bind(&self.claim.agent.image)
        .bind(&self.claim.agent.arch)
        .bind(to_json(&self.token.adoption))
        .bind(&self.cluster.id)
        .execute(&mut *connection)
        .await
        .map_err(db(DOING))?;
        // Another cluster of this name is adopted from the beginning.
        let before = self.cluster.incarnation.as_ref();
        if before.is_some_and(|before| *before != self.claim.incarnation) {
            sqlx::query("DELETE FROM step WHERE cluster_id = $1")
                .bind(&self.cluster.id)
                .execute(&mut *connection)
                .await
                .map_err(db(DOING))?;
        }
        // A join that went well ends the conflict that an earlier one left, and a revocation.
        sqlx::query(
            "DELETE FROM condition WHERE cluster_id = $1 AND type IN ('JoinConflict', 'IdentityRevoked')",
        )
            .bind(&self.cluster.id)
            .execute(connection)
            .await
            .map_err(db(DOING))?;
        Ok(())
    }
}
