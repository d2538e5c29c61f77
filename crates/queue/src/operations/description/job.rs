//! The description of a job, except its tags and its body.
//!
//! Owns: its bytes. There may be millions of jobs while all clients wait, so the fields, each of which has a fixed
//! size, are written and read together.

use crate::clock::Timestamp;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::job::{Counters, JobId, JobState, Priority};
use crate::seconds::Seconds;

/// The size of all fields except the last.
const FIXED_BYTES: usize = 64;

/// A job, except its tags and its body.
#[derive(Debug)]
pub(super) struct DescribedJob {
    pub id: JobId,
    pub created_at: Timestamp,
    pub priority: Priority,
    pub delay_s: u32,
    pub ttr: Seconds,
    /// The number of its tube.
    pub tube: u32,
    pub state: JobState,
    /// Since when it is ready, until when it is reserved or delayed, or its number in the order of burial.
    pub number: u64,
    /// Whether it got a more urgent priority while it was reserved.
    pub is_upgraded: bool,
    pub counters: Counters,
    /// The number of the client that has reserved it, and the instant of the reservation.
    pub holder: Option<(u32, Timestamp)>,
}

impl Described for DescribedJob {
    #[inline(always)]
    fn describe(&self, out: &mut Writer<'_>) {
        let Self {
            id,
            created_at,
            priority,
            delay_s,
            ttr,
            tube,
            state,
            number,
            is_upgraded,
            counters,
            holder,
        } = self;
        let Counters { reserves, timeouts, releases, buries, kicks } = counters;
        let mut rest = &mut out.fields::<FIXED_BYTES>()[..];
        let mut add = |field: &[u8]| {
            let (bytes, behind) = std::mem::take(&mut rest).split_at_mut(field.len());
            bytes.copy_from_slice(field);
            rest = behind;
        };
        add(&id.0.to_le_bytes());
        add(&created_at.0.to_le_bytes());
        add(&priority.0.to_le_bytes());
        add(&delay_s.to_le_bytes());
        add(&ttr.whole().to_le_bytes());
        add(&ttr.thousandths().to_le_bytes());
        add(&tube.to_le_bytes());
        add(&[byte_of(*state)]);
        add(&number.to_le_bytes());
        add(&[u8::from(*is_upgraded)]);
        for count in [reserves, timeouts, releases, buries, kicks] {
            add(&count.to_le_bytes());
        }
        debug_assert!(rest.is_empty());
        holder.describe(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let fixed = &mut from.part(FIXED_BYTES)?;
        let job = Self {
            id: fixed.value()?,
            created_at: fixed.value()?,
            priority: fixed.value()?,
            delay_s: fixed.value()?,
            ttr: fixed.value()?,
            tube: fixed.value()?,
            state: read_state(fixed)?,
            number: fixed.value()?,
            is_upgraded: fixed.value()?,
            counters: Counters {
                reserves: fixed.value()?,
                timeouts: fixed.value()?,
                releases: fixed.value()?,
                buries: fixed.value()?,
                kicks: fixed.value()?,
            },
            holder: None,
        };
        debug_assert!(fixed.is_at_end());
        Ok(Self { holder: from.value()?, ..job })
    }
}

fn byte_of(state: JobState) -> u8 {
    match state {
        JobState::Ready => 0,
        JobState::Reserved => 1,
        JobState::Buried => 2,
        JobState::Delayed => 3,
    }
}

fn read_state(from: &mut Reader<'_>) -> Result<JobState, Malformed> {
    match from.value::<u8>()? {
        0 => Ok(JobState::Ready),
        1 => Ok(JobState::Reserved),
        2 => Ok(JobState::Buried),
        3 => Ok(JobState::Delayed),
        _ => Err(Malformed("the state of a job")),
    }
}
