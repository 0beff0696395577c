// Package cronspec computes the instants of cron schedules, with the same result on every machine.
//
// A schedule is a list of expressions. An expression has the five fields of cron, or six fields with the seconds first, or is a name such as "@daily"
// or "@every 90s". [Parse] parses a list for a time zone. The instants of a schedule are called ticks. [Schedule.Next] and [Schedule.Prev] return the
// tick after or before an instant. The result does not depend on a clock, on the machine's time zone, or on start times. So replicas with the same
// configuration compute the same ticks without communication.
//
// To get the same ticks on every machine, take zones from [LoadLocation], which uses only the built-in zone data, or from [Zones] with the same data
// on every machine. [time.LoadLocation] prefers the zone files of the machine, which may differ between machines.
//
// # Two kinds of clock
//
// The fields are matched with SpecSchedule.Next of robfig/cron, but only against local times: a date and a time of day without a zone. The zone is
// then applied as in Debian's cron, with two kinds of expressions:
//
//   - If the minute or the hour field starts with "*", the expression follows the clock: it fires whenever the clock of the zone shows a matching
//     time. It fires twice in an hour that is repeated, and never in an hour that is skipped.
//   - Any other expression is a fixed-time expression: it fires at the first instant at which the clock shows a matching time or a later time. So all
//     matching times in a skipped hour or day become one tick right after it, and a matching time that the clock shows twice fires only once.
//
// # The day rule
//
// As in Debian's cron, a day must match both the day-of-month and the day-of-week field if one of these fields starts with "*" (also "*/2").
// Otherwise it is enough that one field matches.
//
// # H
//
// "H" stands for a value that depends only on the field and the job's name, so that a thousand hourly jobs do not all start on the hour. "H" is one
// value of the field, and "H(0-29)" one value of the range. "H/15" is every 15th value, beginning at one of the first 15 values. "H(0-29)/10" is
// every 10th value of the range. In the day-of-month field, "H" is at most 28, so that every month has the day. The index of the value among the
// candidates is
//
//	SHA-256("H" NUL field NUL job), first 8 bytes as a big-endian number,
//	modulo the number of candidates
//
// In this formula, field is "second", "minute", "hour", "day of month", "month" or "day of week". The formula will not change between versions.
//
// # Exceptions
//
// [Options] can except instants, which are then not ticks: Next and Prev skip them. Schedules with different exceptions have different keys and
// digests. An expression in Except excepts exactly its own instants: "0 12 * * *" excepts noon, and "* * 12 * * *" the whole hour. The rules above,
// such as the daylight-saving rules, also apply to expressions in Except. For example, "30 2 * * *" excepts all instants of the schedule "30 2 * *
// *". But "* 2 * * *" does not except its tick on a day on which 2:30 is skipped, because this tick is not between 2:00 and 3:00. A date in
// ExceptDates excepts all instants of that day, by the clock of the zone.
//
// # Limits
//
// Ticks are whole seconds between the years 1 and 9999. Parse refuses a schedule without any tick within the 400-year cycle of the calendar. It also
// refuses a schedule if all instants of many successive days with instants are excepted. This limit is the number of days in 40 years, a time in
// which every kind of year occurs.
package cronspec
