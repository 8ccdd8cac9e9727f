//! Agents with good signatures by keys that the hub does not know, and how one of them is let in.

use sqlx::FromRow;
use time::{Duration, OffsetDateTime};

use super::{Connection, Database, clusters, corrupt, db, from_ms, keys, to_ms};
use crate::hub::registration::{self, AcceptRefusal, Acceptance, Accepting};
use crate::hub::store::{
    Accept, Accepted, Cluster, ClusterKey, KeyKind, Result, UnknownAgent, UnknownReason,
};
use crate::keys::Public;
use crate::wire::id::ClusterName;

/// Agents that are listed.
const MAX: i64 = 256;
/// One that was not heard for so long makes room for another.
const QUIET: Duration = Duration::minutes(1);
/// How exactly it is kept when one was heard last: they come every few seconds.
const FRESH: Duration = Duration::seconds(20);

#[derive(FromRow)]
struct Row {
    public: String,
    cluster: String,
    incarnation: Option<String>,
    reason: String,
    addr: String,
    first_seen: i64,
    last_seen: i64,
}

impl Row {
    fn agent(self) -> Result<UnknownAgent> {
        const DOING: &str = "read an unknown agent";
        Ok(UnknownAgent {
            public: Public::from_openssh(&self.public).map_err(corrupt(DOING))?,
            cluster: self.cluster.parse().map_err(corrupt(DOING))?,
            incarnation: self.incarnation,
            // The table's CHECK knows these words only.
            reason: match self.reason.as_str() {
                "key-known" => UnknownReason::KeyKnown,
                "incarnation-changed" => UnknownReason::IncarnationChanged,
                _ => UnknownReason::UnknownIdentity,
            },
            addr: self.addr,
            first_seen: from_ms(self.first_seen),
            last_seen: from_ms(self.last_seen),
        })
    }
}

async fn by_fingerprint(
    connection: &mut Connection,
    fingerprint: &str,
) -> Result<Option<UnknownAgent>> {
    let row: Option<Row> = sqlx::query_as("SELECT * FROM unknown_agent WHERE fingerprint = $1")
        .bind(fingerprint)
        .fetch_optional(connection)
        .await
        .map_err(db("read an unknown agent"))?;
    row.map(Row::agent).transpose()
}

async fn living(connection: &mut Connection, name: &ClusterName) -> Result<Option<Cluster>> {
    let row: Option<clusters::Row> =
        sqlx::query_as("SELECT * FROM cluster WHERE name = $1 AND removed_at IS NULL")
            .bind(name.as_str())
            .fetch_optional(connection)
            .await
            .map_err(db("read a cluster"))?;
    row.map(clusters::Row::cluster).transpose()
}

impl Database {
    pub async fn note_unknown(&self, agent: UnknownAgent) -> Result<bool> {
        const DOING: &str = "note an unknown agent";
        let fingerprint = agent.public.fingerprint();
        let mut reader = self.readers.acquire().await.map_err(db(DOING))?;
        let known = by_fingerprint(&mut reader, &fingerprint).await?;
        drop(reader);
        let same = |known: &UnknownAgent| {
            let stays = UnknownAgent {
                first_seen: known.first_seen,
                last_seen: known.last_seen,
                incarnation: agent
                    .incarnation
                    .clone()
                    .or_else(|| known.incarnation.clone()),
                ..agent.clone()
            };
            *known == stays && agent.last_seen - known.last_seen < FRESH
        };
        if known.as_ref().is_some_and(same) {
            return Ok(true);
        }
        let mut write = self.begin(DOING).await?;
        if by_fingerprint(&mut write.tx, &fingerprint).await?.is_none()
            && !make_room(&mut write.tx, agent.last_seen).await?
        {
            return Ok(false);
        }
        // What it said of its incarnation stays: only some of its calls say it.
        sqlx::query(
            "INSERT INTO unknown_agent (fingerprint, public, cluster, incarnation, reason, addr, first_seen, last_seen)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
             ON CONFLICT (fingerprint) DO UPDATE SET cluster = excluded.cluster, reason = excluded.reason, addr = excluded.addr,
               incarnation = coalesce(excluded.incarnation, unknown_agent.incarnation), last_seen = excluded.last_seen",
        )
        .bind(&fingerprint)
        .bind(agent.public.openssh("").map_err(corrupt(DOING))?)
        .bind(agent.cluster.as_str())
        .bind(&agent.incarnation)
        .bind(agent.reason.as_str())
        .bind(&agent.addr)
        .bind(to_ms(agent.last_seen))
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        write.commit(DOING).await?;
        Ok(true)
    }

    pub async fn unknown_agents(&self) -> Result<Vec<UnknownAgent>> {
        const DOING: &str = "list unknown agents";
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT u.* FROM unknown_agent u WHERE NOT (u.reason = 'unknown-identity' AND EXISTS
               (SELECT 1 FROM cluster_key k WHERE k.fingerprint = u.fingerprint)) ORDER BY u.cluster, u.fingerprint",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(db(DOING))?;
        rows.into_iter().map(Row::agent).collect()
    }

    pub async fn unknown_agent(&self, fingerprint: &str) -> Result<Option<UnknownAgent>> {
        let mut reader = self
            .readers
            .acquire()
            .await
            .map_err(db("read an unknown agent"))?;
        by_fingerprint(&mut reader, fingerprint).await
    }

    pub async fn accept_agent(&self, accept: Accept, now: OffsetDateTime) -> Result<Accepted> {
        const DOING: &str = "accept an agent";
        let mut write = self.begin(DOING).await?;
        let agent = by_fingerprint(&mut write.tx, &accept.fingerprint).await?;
        let key = keys::by_fingerprint(&mut write.tx, &accept.fingerprint).await?;
        let cluster = match &agent {
            Some(agent) => living(&mut write.tx, &agent.cluster).await?,
            None => None,
        };
        let identities = match &cluster {
            Some(cluster) => {
                keys::of_cluster(&mut write.tx, &cluster.id, KeyKind::Identity).await?
            }
            None => Vec::new(),
        };
        let verdict = registration::accept(Accepting {
            agent: agent.as_ref(),
            key: key.as_ref(),
            cluster: cluster.as_ref(),
            identities: &identities,
            live: accept.live,
            replace: accept.replace,
        });
        let (agent, cluster, ended) = match (verdict, agent, cluster) {
            (Acceptance::Refuse(refusal), ..) => return Ok(Accepted::Refused(refusal)),
            (Acceptance::Already, _, Some(cluster)) => {
                return Ok(bound(cluster, (false, true), Vec::new()));
            }
            (Acceptance::Bind, Some(agent), Some(cluster)) => {
                let mut ended = identities;
                if !registration::is_same_place(&cluster, &agent) {
                    // The deploy key is the other place's as well.
                    ended.extend(
                        keys::of_cluster(&mut write.tx, &cluster.id, KeyKind::Deploy).await?,
                    );
                }
                ended.retain(|k| k.state.is_valid());
                (agent, cluster, ended)
            }
            (Acceptance::Create, Some(agent), None) => {
                let Some(new) = &accept.new else {
                    return Ok(Accepted::NoBundle);
                };
                (
                    agent,
                    clusters::insert(&mut write.tx, new, now).await?,
                    Vec::new(),
                )
            }
            // Not reached: each verdict but a refusal needs what it is about.
            (Acceptance::Already | Acceptance::Bind | Acceptance::Create, ..) => {
                return Ok(Accepted::Refused(AcceptRefusal::Unknown));
            }
        };
        let bind = Bind {
            agent: &agent,
            cluster: &cluster,
            ended: &ended,
            now,
        };
        bind.run(&mut write.tx).await?;
        let cluster = living(&mut write.tx, &agent.cluster)
            .await?
            .unwrap_or(cluster);
        write.commit(DOING).await?;
        Ok(bound(
            cluster,
            (verdict == Acceptance::Create, false),
            ended,
        ))
    }
}

fn bound(cluster: Cluster, (created, already): (bool, bool), ended: Vec<ClusterKey>) -> Accepted {
    Accepted::Bound {
        cluster: Box::new(cluster),
        created,
        already,
        ended,
    }
}

/// False = all that are listed were heard a moment ago.
async fn make_room(connection: &mut Connection, now: OffsetDateTime) -> Result<bool> {
    const DOING: &str = "make room for an unknown agent";
    let listed: i64 = sqlx::query_scalar("SELECT count(*) FROM unknown_agent")
        .fetch_one(&mut *connection)
        .await
        .map_err(db(DOING))?;
    if listed < MAX {
        return Ok(true);
    }
    let done = sqlx::query(
        "DELETE FROM unknown_agent WHERE fingerprint =
           (SELECT fingerprint FROM unknown_agent WHERE last_seen < $1 ORDER BY last_seen, fingerprint LIMIT 1)",
    )
    .bind(to_ms(now - QUIET))
    .execute(connection)
    .await
    .map_err(db(DOING))?;
    Ok(done.rows_affected() == 1)
}

/// What an acceptance comes to in the tables.
struct Bind<'a> {
    agent: &'a UnknownAgent,
    cluster: &'a Cluster,
    ended: &'a [ClusterKey],
    now: OffsetDateTime,
}

impl Bind<'_> {
    async fn run(&self, connection: &mut Connection) -> Result<()> {
        const DOING: &str = "accept an agent";
        for key in self.ended {
            sqlx::query(
                "UPDATE cluster_key SET state = 'revoked', updated_at = $1 WHERE fingerprint = $2",
            )
            .bind(to_ms(self.now))
            .bind(&key.fingerprint)
            .execute(&mut *connection)
            .await
            .map_err(db(DOING))?;
        }
        let id = &self.cluster.id;
        keys::forget_moves(connection, id).await?;
        keys::make_room(connection, id, KeyKind::Identity).await?;
        keys::put(
            connection,
            id,
            KeyKind::Identity,
            self.agent.public,
            self.now,
        )
        .await?;
        // What is not known of its incarnation, its first report says.
        sqlx::query(
            "UPDATE cluster SET incarnation = coalesce($1, incarnation), joined_at = coalesce(joined_at, $2), updated_at = $2, rev = rev + 1,
               epoch = CASE WHEN epoch < $3 THEN $3 ELSE epoch END WHERE id = $4",
        )
        .bind(&self.agent.incarnation)
        .bind(to_ms(self.now))
        .bind(registration::epoch_after_a_restore(self.now).cast_signed())
        .bind(id)
        .execute(&mut *connection)
        .await
        .map_err(db(DOING))?;
        sqlx::query("DELETE FROM condition WHERE cluster_id = $1 AND type = 'JoinConflict'")
            .bind(id)
            .execute(&mut *connection)
            .await
            .map_err(db(DOING))?;
        sqlx::query("DELETE FROM unknown_agent WHERE fingerprint = $1")
            .bind(self.agent.public.fingerprint())
            .execute(connection)
            .await
            .map_err(db(DOING))?;
        Ok(())
    }
}
