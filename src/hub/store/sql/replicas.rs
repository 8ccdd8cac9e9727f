//! Processes of the hub and the lines that they hold, by the database's clock.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::FromRow;

use super::{Connection, Database, corrupt, db, from_ms, hash32, to_ms};
use crate::hub::store::{LineRow, Located, Reach, Replica, Result};
use crate::wire::id::ClusterName;

/// A replica whose lease ended so long ago does not come back as the same one, in milliseconds.
const FORGOTTEN: i64 = 600_000;
/// A row that its replica does not know of may be of a line that came while it looked, in milliseconds.
const SETTLED: i64 = 15_000;
/// Lines that are stored at once. A replica has thousands, of which the others may have forgotten all: together they would take longer than
/// its look may, time and again, and keep everybody else from writing meanwhile.
const PART: usize = 100;

#[derive(FromRow)]
struct ReplicaRow {
    id: String,
    peer: String,
    cert_sha256: Vec<u8>,
}

impl ReplicaRow {
    fn replica(self) -> Result<Replica> {
        Ok(Replica {
            cert_sha256: hash32("read a replica", &self.cert_sha256)?,
            id: self.id,
            peer: self.peer,
        })
    }
}

#[derive(FromRow)]
struct Row {
    name: String,
    cluster_id: String,
    epoch: i64,
    session: String,
    instance: String,
    remote: String,
    since: i64,
    /// Now.
    hub_clock: i64,
    #[sqlx(flatten)]
    replica: ReplicaRow,
}

impl Row {
    fn located(self) -> Result<(ClusterName, Located)> {
        let peer = self.replica.replica()?;
        let line = LineRow {
            cluster_id: self.cluster_id,
            replica: peer.id.clone(),
            epoch: self.epoch.unsigned_abs(),
            session: self.session,
            instance: self.instance,
            remote: self.remote,
            since: from_ms(self.since),
            hub_clock: from_ms(self.hub_clock),
        };
        let name = self.name.parse().map_err(corrupt("read where a line is"))?;
        Ok((name, Located { line, peer }))
    }
}

/// Lines that are up, of living clusters.
macro_rules! up {
    ($more:literal) => {
        concat!(
            "SELECT c.name, l.cluster_id, l.epoch, l.session, l.instance, l.remote, l.since,
               l.hub_clock + ", now!(), " - l.at AS hub_clock, r.id, r.peer, r.cert_sha256
             FROM line l JOIN replica r ON r.id = l.replica JOIN cluster c ON c.id = l.cluster_id
             WHERE c.removed_at IS NULL AND r.lease_until > ", now!(), $more
        )
    };
}

impl Database {
    pub async fn renew_replica(&self, replica: &Replica, ttl: Duration) -> Result<()> {
        const DOING: &str = "renew a replica's lease";
        const RENEW: &str = concat!(
            "INSERT INTO replica (id, peer, cert_sha256, lease_until) VALUES ($1, $2, $3, $4 + ", now!(), ")
             ON CONFLICT (id) DO UPDATE SET peer = excluded.peer, cert_sha256 = excluded.cert_sha256,
               lease_until = excluded.lease_until"
        );
        const FORGET: &str = concat!(
            "SELECT id FROM replica WHERE lease_until < ",
            now!(),
            " - $1"
        );
        let mut write = self.begin_row(DOING).await?;
        sqlx::query(RENEW)
            .bind(&replica.id)
            .bind(&replica.peer)
            .bind(replica.cert_sha256.as_slice())
            .bind(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        write.commit(DOING).await?;
        let forgotten: Vec<String> = sqlx::query_scalar(FORGET)
            .bind(FORGOTTEN)
            .fetch_all(&self.readers)
            .await
            .map_err(db(DOING))?;
        for id in forgotten {
            self.leave_replica(&id).await?;
        }
        Ok(())
    }

    pub async fn replicas(&self) -> Result<Vec<Replica>> {
        const LIVE: &str = concat!(
            "SELECT id, peer, cert_sha256 FROM replica WHERE lease_until > ",
            now!(),
            " ORDER BY id"
        );
        let rows: Vec<ReplicaRow> = sqlx::query_as(LIVE)
            .fetch_all(&self.readers)
            .await
            .map_err(db("list replicas"))?;
        rows.into_iter().map(ReplicaRow::replica).collect()
    }

    pub async fn tell_urls(&self, id: &str, urls: &str) -> Result<()> {
        let told = sqlx::query("UPDATE replica SET urls = $2 WHERE id = $1 AND urls <> $2")
            .bind(id)
            .bind(urls);
        self.change("note how a replica is reached", told)
            .await
            .map(drop)
    }

    pub async fn reaches(&self) -> Result<Vec<Reach>> {
        const LIVE: &str = concat!(
            "SELECT id, peer, urls FROM replica WHERE lease_until > ",
            now!(),
            " ORDER BY id"
        );
        let rows: Vec<(String, String, String)> = sqlx::query_as(LIVE)
            .fetch_all(&self.readers)
            .await
            .map_err(db("list how replicas are reached"))?;
        let reach = |(id, peer, urls)| Reach { id, peer, urls };
        Ok(rows.into_iter().map(reach).collect())
    }

    pub async fn leave_replica(&self, id: &str) -> Result<()> {
        const DOING: &str = "end a replica's lease";
        let mut write = self.begin(DOING).await?;
        for sql in [
            "DELETE FROM line WHERE replica = $1",
            "DELETE FROM replica WHERE id = $1",
        ] {
            sqlx::query(sql)
                .bind(id)
                .execute(&mut *write.tx)
                .await
                .map_err(db(DOING))?;
        }
        write.commit(DOING).await
    }

    pub async fn put_line(&self, line: &LineRow) -> Result<bool> {
        const DOING: &str = "note where a line is";
        let mut write = self.begin_row(DOING).await?;
        let put = put(&mut write.tx, line, DOING).await?;
        write.commit(DOING).await?;
        Ok(put)
    }

    pub async fn drop_line(&self, cluster_id: &str, epoch: u64) -> Result<()> {
        const DOING: &str = "note that a line ended";
        let statement = sqlx::query("DELETE FROM line WHERE cluster_id = $1 AND epoch = $2")
            .bind(cluster_id)
            .bind(epoch.cast_signed());
        self.change_row(DOING, statement).await.map(drop)
    }

    pub async fn line_of(&self, cluster: &ClusterName) -> Result<Option<Located>> {
        let row: Option<Row> = sqlx::query_as(up!(" AND c.name = $1"))
            .bind(cluster.as_str())
            .fetch_optional(&self.readers)
            .await
            .map_err(db("read where a line is"))?;
        let located = row.map(Row::located).transpose()?;
        Ok(located.map(|(_, located)| located))
    }

    pub async fn lines(&self) -> Result<Vec<(ClusterName, Located)>> {
        let rows: Vec<Row> = sqlx::query_as(up!(" ORDER BY c.name"))
            .fetch_all(&self.readers)
            .await
            .map_err(db("list lines"))?;
        rows.into_iter().map(Row::located).collect()
    }

    pub async fn keep_lines(&self, replica: &str, held: Vec<LineRow>) -> Result<Vec<LineRow>> {
        const DOING: &str = "note which lines are held";
        const KNOWN: &str = "SELECT cluster_id, epoch FROM line WHERE replica = $1";
        const EXTRA: &str = concat!(
            "DELETE FROM line WHERE cluster_id = $1 AND epoch = $2 AND replica = $3 AND at < ",
            now!(),
            " - $4"
        );
        let known: Vec<(String, i64)> = sqlx::query_as(KNOWN)
            .bind(replica)
            .fetch_all(&self.readers)
            .await
            .map_err(db(DOING))?;
        let named = |line: &LineRow| (line.cluster_id.clone(), line.epoch.cast_signed());
        let known: BTreeSet<(String, i64)> = known.into_iter().collect();
        let asked: BTreeSet<(String, i64)> = held.iter().map(named).collect();
        let mut missing: Vec<&LineRow> = held.iter().collect();
        missing.retain(|line| !known.contains(&named(line)));
        let extra: Vec<&(String, i64)> = known.difference(&asked).collect();
        if missing.is_empty() && extra.is_empty() {
            return Ok(Vec::new());
        }
        // In one order everywhere: nobody waits in a circle for another's rows.
        missing.sort_by(|a, b| a.cluster_id.cmp(&b.cluster_id));
        let mut older = Vec::new();
        for part in missing.chunks(PART) {
            let mut write = self.begin(DOING).await?;
            for line in part {
                if !put(&mut write.tx, line, DOING).await? {
                    older.push((*line).clone());
                }
            }
            write.commit(DOING).await?;
        }
        for part in extra.chunks(PART) {
            let mut write = self.begin(DOING).await?;
            for (cluster, epoch) in part {
                sqlx::query(EXTRA)
                    .bind(cluster)
                    .bind(epoch)
                    .bind(replica)
                    .bind(SETTLED)
                    .execute(&mut *write.tx)
                    .await
                    .map_err(db(DOING))?;
            }
            write.commit(DOING).await?;
        }
        Ok(older)
    }
}

/// False = a newer line is there, or the cluster was removed.
async fn put(connection: &mut Connection, line: &LineRow, doing: &'static str) -> Result<bool> {
    const PUT: &str = concat!(
        "INSERT INTO line (cluster_id, replica, epoch, session, instance, remote, since, hub_clock, at)
         SELECT id, $2, $3, $4, $5, $6, $7, $8, ", now!(), " FROM cluster WHERE id = $1 AND removed_at IS NULL
         ON CONFLICT (cluster_id) DO UPDATE SET replica = excluded.replica, epoch = excluded.epoch,
           session = excluded.session, instance = excluded.instance, remote = excluded.remote, since = excluded.since,
           hub_clock = excluded.hub_clock, at = excluded.at
         WHERE line.epoch < excluded.epoch OR (line.epoch = excluded.epoch AND line.replica = excluded.replica)"
    );
    let done = sqlx::query(PUT)
        .bind(&line.cluster_id)
        .bind(&line.replica)
        .bind(line.epoch.cast_signed())
        .bind(&line.session)
        .bind(&line.instance)
        .bind(&line.remote)
        .bind(to_ms(line.since))
        .bind(to_ms(line.hub_clock))
        .execute(connection)
        .await
        .map_err(db(doing))?;
    Ok(done.rows_affected() == 1)
}
