// Package cronspec computes the instants of schedules, the same ones on every machine.
//
// A schedule is a list of expressions: the five fields of cron, or six with the seconds first, or one such as "@daily" or "@every 90s". [Parse] reads
// them together with a time zone. [Schedule.Next] and [Schedule.Prev] walk the instants, which are called ticks. The package does not look at a
// clock, at the zone of the machine, or at the order in which things were started, so replicas with the same configuration agree on every tick
// without talking.
//
// For zones that holds if they come from [LoadLocation], which reads only the built-in zone data, or from [Zones] with the same data on every
// machine. [time.LoadLocation] prefers the zone files of the machine, and two machines may have different ones.
//
// # Two kinds of clock
//
// The fields are read by robfig/cron's parser and matched by its SpecSchedule.Next, but only on the face of a wall clock: a date and a time of day
// without a zone, for which UTC stands in. The zone is then applied to that face as in Debian's cron:
//
//   - If the minute or the hour field starts with "*", the job follows the clock: it fires whenever the clock shows a matching time, twice in an
//     hour that is repeated and never in an hour that is skipped.
//   - Any other expression is a fixed-time job: it fires at the first instant at which the clock shows its time or a later one. So times in a skipped
//     hour (or a skipped day) become one tick right after it, and a time that is shown twice counts only the first time.
//
// # The day rule
//
// As in Debian's cron, a day must match both the day-of-month and the day-of-week field if one of them starts with "*" ("*/2" included), and either
// of them otherwise.
//
// # H
//
// "H" stands for a place within a field that depends only on the job's name, so that a thousand hourly jobs do not all start on the hour. "H" is one
// value of the field, "H(0-29)" one of the range, "H/15" every 15th value from such a place on, and "H(0-29)/10" both. In the day of month "H" stays
// within 1-28, so that every month has the day. The place is
//
//	SHA-256("H" NUL field NUL job), first 8 bytes as a big-endian number,
//	modulo the number of candidates
//
// with the field called "second", "minute", "hour", "day of month", "month" or "day of week". It will not change between versions.
//
// # Exceptions
//
// An instant excepted by [Options] is not a tick: Next and Prev pass over it, and schedules with different exceptions have different keys and
// digests. An expression excepts exactly the instants that it names: "0 12 * * *" takes out noon, and "* * 12 * * *" the whole hour. It follows the
// rules above by itself, including the rules for daylight saving: so "30 2 * * *" excepts the instants of a schedule of the same text on every day,
// and "* 2 * * *" does not if 2:30 was skipped. A date excepts the instants at which the clock of the zone shows it.
//
// # Limits
//
// Ticks are whole seconds between the years 1 and 9999. Parse refuses a schedule without any tick within the 400-year cycle of the calendar. It also
// refuses one whose instants are all excepted on as many of its days as 40 years have: every kind of year occurs in that time, and Next looks no
// further.
package cronspec
