//! The table of methods: a row for each command, from which both clients get theirs.
//!
//! Owns: the request of each method, and the meaning of each reply to it. A reply that refuses the command is
//! [`Error::Refused`](crate::Error::Refused); an argument that the protocol does not have is
//! [`Error::Invalid`](crate::Error::Invalid).

/// Passes the table to the macro `$make`, for a driver. A row has the method, its preconditions, the request, and the
/// results of the replies to it. A new command is a row here. The first line names what a result can use: the fields of
/// RESERVED lines.
macro_rules! with_commands {
    ($make:ident, $driver:ident) => {
        $make! {
            $driver, with fields;

            // Producers.

            /// Puts a job into the used tube.
            fn put(body: &[u8], options: &PutOptions) -> Inserted {
                Request::Put(options, body);
                reply @ (Reply::Inserted(_) | Reply::Duplicate(..)) => Inserted::of_reply(&reply)?
            }

            /// Changes the used tube.
            fn use_tube(tube: &TubeName) -> () {
                Command::Use(tube.into());
                Reply::Using(_) => ()
            }

            // Workers.

            /// Reserves a job of the watched tubes, and waits for one without a limit.
            fn reserve() -> Job {
                Command::Reserve;
                Reply::Reserved(id, body) => Job::from((id, body)),
                Reply::ReservedWith(id, body, values) => Job::with_fields(id, body, values, fields)
            }

            /// Reserves a job, and waits at most `seconds` for one;
            /// [`Refusal::TimedOut`](crate::Refusal::TimedOut) if none came.
            fn reserve_with_timeout(seconds: impl Into<Seconds>) -> Job {
                Command::ReserveWithTimeout { timeout_s: seconds.into() };
                Reply::Reserved(id, body) => Job::from((id, body)),
                Reply::ReservedWith(id, body, values) => Job::with_fields(id, body, values, fields)
            }

            /// Reserves this ready, delayed or buried job.
            fn reserve_job(id: u64) -> Job {
                Command::ReserveJob(JobId(id));
                Reply::Reserved(id, body) => Job::from((id, body)),
                Reply::ReservedWith(id, body, values) => Job::with_fields(id, body, values, fields)
            }

            /// Deletes a job that is not reserved by another client.
            fn delete(id: u64) -> () {
                Command::Delete(JobId(id));
                Reply::Deleted => ()
            }

            /// Releases a job that this connection has reserved. Returns `false` if the server has buried it instead.
            fn release(id: u64, pri: u32, delay: impl Into<Seconds>) -> bool {
                Command::Release {
                    id: JobId(id),
                    priority: Priority(pri),
                    delay_s: delay.into(),
                    counting: Counting::Counted,
                };
                Reply::Released => true,
                Reply::Buried => false
            }

            /// Buries a job that this connection has reserved.
            fn bury(id: u64, pri: u32) -> () {
                Command::Bury { id: JobId(id), priority: Priority(pri) };
                Reply::Buried => ()
            }

            /// Starts the TTR of a reserved job again.
            fn touch(id: u64) -> () {
                Command::Touch { id: JobId(id), for_s: None };
                Reply::Touched => ()
            }

            /// Watches a tube. Returns the number of watched tubes.
            fn watch(tube: &TubeName) -> u64 {
                Command::Watch { tube: tube.into(), weight: 1 };
                Reply::Watching(count) => count
            }

            /// Stops watching a tube. Returns the number of watched tubes;
            /// [`Refusal::NotIgnored`](crate::Refusal::NotIgnored) if it is the last one.
            fn ignore(tube: &TubeName) -> u64 {
                Command::Ignore(tube.into());
                Reply::Watching(count) => count
            }

            // Operators.

            /// Returns a job in any state, without reserving it.
            fn peek(id: u64) -> Job {
                Command::Peek(JobId(id));
                Reply::Found(id, body) => Job::from((id, body))
            }

            /// Returns the next job of a state in the used tube. [`JobState::Reserved`] is an extension.
            fn peek_next(state: JobState) -> Job {
                match state {
                    JobState::Ready => Command::PeekReady,
                    JobState::Reserved => Command::PeekReserved,
                    JobState::Delayed => Command::PeekDelayed,
                    JobState::Buried => Command::PeekBuried,
                };
                Reply::Found(id, body) => Job::from((id, body))
            }

            /// Makes up to `bound` buried jobs of the used tube ready, or delayed jobs if none is buried. Returns their
            /// number.
            fn kick(bound: u64) -> u64 {
                Command::Kick { bound };
                Reply::Kicked(count) => count
            }

            /// Makes this buried or delayed job ready.
            fn kick_job(id: u64) -> () {
                Command::KickJob(JobId(id));
                Reply::KickedJob => ()
            }

            /// Pauses the tube for `seconds`: no client can reserve its jobs. 0 ends a pause.
            fn pause_tube(tube: &TubeName, seconds: impl Into<Seconds>) -> () {
                Command::PauseTube { tube: tube.into(), delay_s: seconds.into() };
                Reply::Paused => ()
            }

            /// Returns the counters of the server.
            fn stats() -> Dictionary {
                Command::Stats;
                Reply::Data(data) => parse_dictionary(data)?
            }

            /// Returns the counters of a tube.
            fn stats_tube(tube: &TubeName) -> Dictionary {
                Command::StatsTube(tube.into());
                Reply::Data(data) => parse_dictionary(data)?
            }

            /// Returns the counters of a job.
            fn stats_job(id: u64) -> JobInfo {
                Command::StatsJob(JobId(id));
                Reply::Data(data) => JobInfo::from_stats(&parse_dictionary(data)?)?
            }

            /// Sends a command whose reply is a dictionary, and returns it.
            fn dictionary(command: Command<'_>) -> Dictionary {
                command;
                Reply::Data(data) => parse_dictionary(data)?
            }

            /// Returns the names of all tubes, in the server's order.
            fn list_tubes() -> Vec<String> {
                Command::ListTubes;
                Reply::Data(data) => parse_list(data)?
            }

            /// Returns the names of the watched tubes.
            fn list_tubes_watched() -> Vec<String> {
                Command::ListTubesWatched;
                Reply::Data(data) => parse_list(data)?
            }

            /// Returns the name of the used tube.
            fn list_tube_used() -> String {
                Command::ListTubeUsed;
                Reply::Using(tube) => tube.to_owned()
            }

            // Extensions.

            /// Deletes every job of the tube, including reserved ones. Returns their number.
            fn flush_tube(tube: &TubeName) -> u64 {
                Command::FlushTube(tube.into());
                Reply::Flushed(count) => count
            }

            /// Deletes the buried jobs of the tube. Returns their number.
            fn flush_buried(tube: &TubeName) -> u64 {
                Command::FlushBuried(tube.into());
                Reply::Flushed(count) => count
            }

            /// Returns a page of at most `limit` (1 to 1000) jobs of the tube in this state. `cursor` is [`Page::next`]
            /// of the previous page.
            fn list_jobs(tube: &TubeName, state: JobState, limit: u32, cursor: Option<&Cursor>) -> Page {
                Request::page(Command::ListJobs { tube: tube.into(), state, limit, after: None }, cursor);
                Reply::Data(data) => Page::parse(data, tube.as_str(), state)?
            }

            /// Returns a page of at most `limit` (1 to 1000) clients of the server, each with the keys of
            /// `list-clients`, and the cursor of the next page. `cursor` is the cursor of the previous page.
            fn list_clients(limit: u32, cursor: Option<&Cursor>) -> (Vec<Dictionary>, Option<Cursor>) {
                Request::page(Command::ListClients { limit, after_client: None }, cursor);
                Reply::Data(data) => {
                    let (next, clients) = parse_page(data)?;
                    (clients, Cursor::of_page(&next)?)
                }
            }

            /// Closes the connection of a client, as if it had been lost. `id` is the id in `list-clients`.
            fn kill_client(id: u64) -> () {
                Command::KillClient { number: id };
                Reply::Killed => ()
            }

            /// Moves a job to another tube, where it keeps its state.
            fn move_job(id: u64, tube: &TubeName) -> () {
                Command::Move { id: JobId(id), tube: tube.into() };
                Reply::Moved => ()
            }

            /// Changes the priority of a ready, delayed or buried job.
            fn reprioritize(id: u64, pri: u32) -> () {
                Command::Reprioritize { id: JobId(id), priority: Priority(pri) };
                Reply::Reprioritized => ()
            }

            /// Starts drain mode: the server accepts no new jobs.
            fn drain() -> () {
                Command::Drain;
                Reply::Draining => ()
            }

            /// Ends drain mode: the server accepts new jobs again.
            fn undrain() -> () {
                Command::Undrain;
                Reply::NotDraining => ()
            }

            /// Returns the counters of a group.
            fn stats_group(name: &TubeName) -> Dictionary {
                Command::StatsGroup(name.into());
                Reply::Data(data) => parse_dictionary(data)?
            }

            /// Reserves up to `count` (1 to 1000) jobs. With a time-out in seconds, waits at most that long for the
            /// first one.
            fn reserve_batch(count: u32, timeout: Option<Seconds>) -> Vec<Job> {
                Command::ReserveBatch { max_jobs: count, timeout_s: timeout };
                Reply::ReservedBatch(jobs) => {
                    let jobs = jobs.iter_with_values();
                    jobs.map(|(id, body, values)| Job::with_fields(id, body, values, fields)).collect()
                },
                // A job of an earlier reserve whose caller no longer waited.
                Reply::Reserved(id, body) => vec![Job::from((id, body))],
                Reply::ReservedWith(id, body, values) => vec![Job::with_fields(id, body, values, fields)]
            }

            /// Deletes 1 to 1000 jobs. Returns how many were deleted, and for how many ids there was no job to delete.
            fn delete_batch(ids: &[u64]) -> (u64, u64)
            where ids = ids.iter().copied().map(JobId).collect::<Vec<_>>(),
            {
                Command::DeleteBatch(IdList::new(&ids).ok_or(Error::Invalid("delete-batch has 1 to 1000 ids"))?);
                Reply::DeletedBatch(deleted, not_found) => (deleted, not_found)
            }

            /// Touches every job that this connection has reserved. Returns their number.
            fn touch_all() -> u64 {
                Command::TouchAll;
                Reply::TouchedAll(count) => count
            }

            /// Attaches this connection to the session with this name: its reservations stay for `grace` after the
            /// connection ends, at most an hour and counted in whole milliseconds. Returns how many jobs the session
            /// has, including those of an earlier connection. Another connection that is attached to the session is
            /// closed.
            fn session(name: &TubeName, grace: Duration) -> u64
            where grace = grace_of(grace)?,
            {
                Command::Session { name: name.into(), grace };
                Reply::Session(count) => count
            }

            /// Lets this reservation end `seconds` from now, at least 1. The TTR of the job does not change.
            fn touch_for(id: u64, seconds: impl Into<Seconds>) -> () {
                Command::Touch { id: JobId(id), for_s: Some(seconds.into()) };
                Reply::Touched => ()
            }

            /// Releases a job that this connection has reserved. It counts neither as a release nor as a failure.
            fn release_uncounted(id: u64, pri: u32, delay: impl Into<Seconds>) -> () {
                Command::Release {
                    id: JobId(id),
                    priority: Priority(pri),
                    delay_s: delay.into(),
                    counting: Counting::Uncounted,
                };
                Reply::Released | Reply::Buried => ()
            }

            /// Deletes a job that this connection has reserved and puts these, at most a hundred, all or nothing.
            /// Returns the id of each.
            fn complete(id: u64, puts: &[(PutOptions, &[u8])]) -> Vec<u64> {
                Request::Complete(JobId(id), puts);
                Reply::Completed(ids) => ids.iter().map(|id| id.0).collect()
            }

            /// Waits until this job is deleted or buried, for at most `timeout`;
            /// [`Refusal::TimedOut`](crate::Refusal::TimedOut) if neither happens. Returns `false` if it is buried. If
            /// the connection is lost, the command is sent again: it is
            /// [`Refusal::NotFound`](crate::Refusal::NotFound) if the job was deleted in between, and waits for the
            /// next end of a job that was buried and kicked in between.
            fn wait_job(id: u64, timeout: Option<Seconds>) -> bool {
                Command::WaitJob { id: JobId(id), timeout_s: timeout };
                Reply::DeletedJob(_) => true,
                Reply::BuriedJob(_) => false
            }

            /// From now on, the jobs that this connection reserves have these [`Fields`](crate::Fields), each at most
            /// once; without any, they have none. If several callers share the connection, this affects all of them.
            fn reserve_fields(list: &[Field]) -> ()
            where list = FieldList::new(list.iter().copied()),
            {
                Command::ReserveFields(list.ok_or(Error::Invalid("reserve-fields has each field at most once"))?);
                // One field reads like the name of a tube.
                Reply::UsingFields(_) | Reply::Using(_) => ()
            }

            /// Logs in with a token. If no identity has it, the server closes the connection.
            fn auth(token: &str) -> ()
            // A text that is not a token could be a line of its own.
            where token = Token::parse(token).ok_or(Error::Invalid(Token::RULE))?,
            {
                Command::Auth(token.as_bytes());
                Reply::Authenticated => ()
            }

            /// Watches a tube with a weight (1 to 9999), or changes its weight. Returns the number of watched tubes.
            fn watch_weighted(tube: &TubeName, weight: u16) -> u64 {
                Command::Watch { tube: tube.into(), weight };
                Reply::Watching(count) => count
            }

            /// Sets how the reserves of this connection choose among the watched tubes.
            fn reserve_mode(mode: ModeWord) -> () {
                Command::ReserveMode(mode);
                Reply::Using(_) => ()
            }

            /// Reserves a job. The next byte on the connection ends the wait with
            /// [`Refusal::Aborted`](crate::Refusal::Aborted).
            fn reserve_with_abort(seconds: Option<Seconds>) -> Job {
                Command::ReserveWithAbort { timeout_s: seconds };
                Reply::Reserved(id, body) => Job::from((id, body)),
                Reply::ReservedWith(id, body, values) => Job::with_fields(id, body, values, fields)
            }
        }
    };
}

pub(crate) use with_commands;
