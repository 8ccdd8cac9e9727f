//! What a stream has queued.

use std::collections::VecDeque;

use bytes::{Buf as _, BytesMut};

/// Bytes of the largest chunk.
const CHUNK: usize = 64 << 10;
/// Bytes of the smallest chunk.
const LEAST: usize = 512;

/// Bytes in the order of their writing. They lie in chunks, so that adding to a long queue moves nothing that is in
/// it, and what has left gives its memory back. A queue that stays short has small chunks.
#[derive(Debug, Default)]
pub(super) struct Queue {
    chunks: VecDeque<BytesMut>,
    len: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, data: &[u8]) {
        self.len += data.len();
        let (mut rest, mut before) = (data, 0);
        if let Some(last) = self.chunks.back_mut() {
            let room = last.capacity() - last.len();
            let fits;
            (fits, rest) = data.split_at(room.min(data.len()));
            last.extend_from_slice(fits);
            before = last.len();
        }
        while !rest.is_empty() {
            let capacity = rest.len().max(2 * before).clamp(LEAST, CHUNK);
            let mut chunk = BytesMut::with_capacity(capacity);
            let fits;
            (fits, rest) = rest.split_at(capacity.min(rest.len()));
            chunk.extend_from_slice(fits);
            before = chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// Moves the first `len` bytes, or all that there are, to the end of `out`.
    pub(super) fn move_to(&mut self, out: &mut BytesMut, mut len: usize) {
        while let Some(first) = self.chunks.front_mut().filter(|_| len > 0) {
            let step = len.min(first.len());
            out.extend_from_slice(first.get(..step).unwrap_or_default());
            first.advance(step);
            if first.is_empty() {
                self.chunks.pop_front();
            }
            self.len -= step;
            len -= step;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is written and taken in turn: it comes out as it went in, and a chunk that is empty is gone.
        #[test]
        fn bytes_leave_in_the_order_of_their_writing(
            turns in prop::collection::vec((0_usize..200_000, 0_usize..200_000), 1..20),
        ) {
            let (mut queue, mut out) = (Queue::default(), BytesMut::new());
            let mut put = Vec::new();
            for (write, take) in turns {
                let data: Vec<u8> = (0..=250).cycle().skip(put.len() % 251).take(write).collect();
                queue.push(&data);
                put.extend(data);
                let left = queue.len();
                queue.move_to(&mut out, take);
                prop_assert_eq!(queue.len(), left.saturating_sub(take));
                prop_assert_eq!(out.len() + queue.len(), put.len());
                prop_assert!(queue.chunks.iter().all(|chunk| !chunk.is_empty()));
                prop_assert_eq!(queue.chunks.is_empty(), queue.is_empty());
            }
            queue.move_to(&mut out, usize::MAX);
            prop_assert!(out == put);
        }
    }

    #[test]
    fn a_queue_of_a_few_bytes_holds_a_small_chunk_and_a_long_one_few_large_ones() {
        let capacities =
            |queue: &Queue| -> Vec<usize> { queue.chunks.iter().map(BytesMut::capacity).collect() };
        let mut queue = Queue::default();
        queue.push(b"a");
        assert_eq!(capacities(&queue), [LEAST]);
        for _ in 0..CHUNK {
            queue.push(b"a");
        }
        assert_eq!(
            capacities(&queue),
            [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]
        );
        let mut queue = Queue::default();
        queue.push(&vec![0; 3 * CHUNK]);
        assert_eq!(capacities(&queue), [CHUNK, CHUNK, CHUNK]);
    }
}
