package importer

import "testing"

func crontabOf(dialect string) Options {
	return Options{Source: "crontab", Dialect: dialect, Timezone: "UTC"}
}

// TestCrontabDetails has forms whose meaning is easily lost: the user, the folder, and rules of one cron.
func TestCrontabDetails(t *testing.T) {
	t.Parallel()
	checkDetails(t, map[string]detail{
		"a user's folder":                      {crontabOf(""), "", "0 3 * * * find . -delete\n", "'''\ncd \"${HOME:?}\" || exit\nfind . -delete'''", ""},
		"a user who is not known":              {crontabOf(""), "", "0 3 * * * find . -delete\n", `# write user = "..."`, ""},
		"a user's folder without sh":           {crontabOf(""), "", "SHELL=/bin/fish\n0 3 * * * x\n", notCarried, ""},
		"a user's folder by HOME":              {crontabOf(""), "", "HOME=/srv\n0 3 * * * x\n", `dir = "/srv"`, "cd "},
		"a user's folder with the user":        {crontabOf(""), "/var/spool/cron/crontabs/bob", "0 3 * * * x\n", `user = "bob"`, "write user"},
		"a program like a user":                {crontabOf(""), "crontab", "0 3 * * * mysql -e x\n", "Carried: 1", `user = "mysql"`},
		"a user or a program":                  {crontabOf(""), "crontab", "0 3 * * * mysql x\n", "may be a user", ""},
		"some lines with a user":               {crontabOf(""), "crontab", "0 3 * * * root x\n0 3 * * * y z\n", "may be a user", ""},
		"a user in the standard input":         {crontabOf(""), "", "0 3 * * * root x\n", "may be a user", ""},
		"a user in each line":                  {crontabOf(""), "crontab", "0 3 * * * root x\n0 3 * * * mysql y\n", `user = "mysql"`, ""},
		"a backslash of Debian's":              {crontabOf(""), "", `0 3 * * * a \\ b` + "\n", "exit\na \\ b'''", ""},
		"a backslash of OpenBSD's":             {crontabOf("openbsd"), "", `0 3 * * * a \\ b` + "\n", "exit\na \\\\ b'''", ""},
		"a line that busybox joins":            {crontabOf("busybox"), "", "0 3 * * * a \\\nb\n", "a b'''", ""},
		"a comment that busybox joins":         {crontabOf("busybox"), "", "# a \\\n0 3 * * * b\n0 4 * * * c\n", "Carried: 1. Not carried: 0", ""},
		"a comment of busybox":                 {crontabOf("busybox"), "", "0 3 * * * a # b\n", "exit\na '''", ""},
		"a # inside a command of busybox":      {crontabOf("busybox"), "", "0 3 * * * a \"# b\"\n", "ends a line at #", ""},
		"a HOME that busybox ignores":          {crontabOf("busybox"), "", "HOME=/srv\n0 3 * * * a\n", "cd ", "/srv"},
		"a long name of busybox":               {crontabOf("busybox"), "", "0 3 * * monday a\n", "is no day of week", ""},
		"days of busybox that are none":        {crontabOf("busybox"), "", "0 3 */40 * * a\n", "is no day of month", ""},
		"a year list of supercronic":           {crontabOf("supercronic"), "", "0 3 * * * 2030,2032 a\n", notCarried, ""},
		"a last day of supercronic":            {crontabOf("supercronic"), "", "0 0 3 L * * * a\n", notCarried, ""},
		"a command like a year of supercronic": {crontabOf("supercronic"), "", "0 3 * * * 7z\n", "Carried: 1", ""},
		"days up to 7 of supercronic":          {crontabOf("supercronic"), "", "0 3 * * 5-7 a\n", "goes backwards", ""},
		"days from 0 to 7 of supercronic":      {crontabOf("supercronic"), "", "0 3 * * 0-7 a\n", `"0 3 * * 0"`, ""},
		"a long step of supercronic":           {crontabOf("supercronic"), "", "*/60 * * * * a\n", "refuses the step", ""},
		"a home of systemd-cron":               {crontabOf("systemd-cron"), "", "HOME=/srv\n0 3 * * * a\n", `dir = "/"`, "cd "},
		"every secret of a line":               {crontabOf(""), "", "0 3 * * * mysql -pfirst a && mysql -psecond b\n", "schedule: 0 3 * * *\n# not carried", "mysql"},
		"a user's name without the user":       {crontabOf(""), "", "0 3 * * * rm -r /home/$USER/x\n", "not carried: $USER has no value", ""},
		"an address in a command":              {crontabOf(""), "", "MAILTO=a@b\n0 3 * * * /bin/mail $MAILTO\n", `MAILTO = "a@b"`, ""},
		"a user before a program":              {crontabOf(""), "crontab", "0 3 * * * pi /bin/sh x\n", "may be a user", ""},
		"a variable in Latin-1":                {crontabOf(""), "", "A=\xe9\n0 3 * * * a\n", "not UTF-8", ""},
	})
}

// TestNamesComeFromPrograms has commands whose first words are keywords of the shell, tests or wrappers with options and operands: a name is the first program behind them.
func TestNamesComeFromPrograms(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"if [ -x /usr/bin/foo ]; then /usr/bin/foo; fi":                               "foo",
		"if [ -x /usr/bin/foo ] && [ -f /etc/foo.conf ];then /usr/bin/foo;fi":         "foo",
		"if test -x /usr/bin/foo; then /usr/bin/foo.sh -v; fi":                        "foo",
		"if [[ ! -d /srv ]]; then\n  mkdir /srv\nfi":                                  "mkdir",
		"if ! /opt/alive; then echo dead; fi":                                         "alive",
		"if [ -x /a ]; then cd /a ; fi; if [ -x /b ]; then foo; fi":                   "foo",
		"if [ -x /a ]; then /a/new x; elif [ -x /b ]; then /b/old; else old; fi":      "new",
		`if [ "$(curl localhost/ping)" != pong ]; then service web restart; fi`:       "service",
		"for i in a b; do /bin/run $i; done":                                          "run",
		"while read -r x; do foo $x; done < /etc/list":                                "foo",
		"until ping -c1 db; do sleep 1; done; bar":                                    "ping",
		"case $(hostname) in a|b) foo;; *) bar;; esac":                                "foo",
		"[ -x /usr/bin/foo ] && { /usr/bin/foo; }":                                    "foo",
		"[ -d /var/x ] && find /var/x -exec rm {} \\;":                                "find",
		"test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )": "run-parts",
		"(foo; bar)":                       "foo",
		"! foo":                            "foo",
		"cd /x || exit; make all":          "make",
		"A=1 nice -n 5 timeout 5m foo|bar": "foo",
		`bash -c "if foo; then bar; fi"`:   "foo",
		"if true; then :; fi > /dev/null":  "job",
		"fi; done > /x; esac; }":           "job",

		// options and operands of programs that start another one
		"sudo -u bob foo":                                    "foo",
		"sudo -Eu bob -g www foo":                            "foo",
		"sudo -uguest -H -- foo":                             "foo",
		"sudo --user bob -E A=b c":                           "c",
		"sudo --user=bob -i foo":                             "foo",
		"doas -u bob foo":                                    "foo",
		"su - user -c 'foo x'":                               "foo",
		"su -c foo user":                                     "foo",
		"su -s /bin/sh www-data -c 'cd /x && foo'":           "foo",
		`su --shell /bin/sh -lc "foo" user`:                  "foo",
		"su user":                                            "job",
		"runuser -u bob -- foo":                              "foo",
		"runuser -l bob -c foo":                              "foo",
		"gosu bob foo":                                       "foo",
		"su-exec bob:www foo":                                "foo",
		"setuidgid bob /opt/foo":                             "foo",
		"setpriv --reuid bob --regid=100 --clear-groups foo": "foo",
		"nice -n 5 foo":                                      "foo",
		"nice -n19 foo":                                      "foo",
		"nice --adjustment 5 foo":                            "foo",
		"ionice -c2 -n7 foo":                                 "foo",
		"ionice -c idle -t foo":                              "foo",
		"ionice --class best-effort foo":                     "foo",
		"chrt -i 0 foo":                                      "foo",
		"taskset -c 0,1 foo":                                 "foo",
		"timeout 30 foo":                                     "foo",
		"timeout -s KILL -k 5 $MAX foo":                      "foo",
		"timeout --signal TERM 1h foo":                       "foo",
		"flock -n /file foo":                                 "foo",
		"flock -w 5 /var/lock/test foo":                      "foo",
		"flock --timeout 5 lock -c 'foo x'":                  "foo",
		"(flock -n 9 || exit 1; foo) 9>/x":                   "foo",
		"setlock -nx run.lock foo":                           "foo",
		"lckdo -w run.lock foo":                              "foo",
		"chronic foo":                                        "foo",
		"chronic -v -e foo":                                  "foo",
		"cronic foo":                                         "foo",
		"cronlock foo":                                       "foo",
		"run-one foo":                                        "foo",
		"env A=b foo":                                        "foo",
		"env -i -u HOME -C /srv A=b foo":                     "foo",
		"/usr/bin/env --unset HOME bash foo":                 "foo",
		"systemd-cat -t name foo":                            "foo",
		"systemd-cat --identifier name -p info foo":          "foo",
		"systemd-run --user -p CPUQuota=20% --unit x foo":    "foo",
		"stdbuf -o L foo":                                    "foo",
		"/usr/bin/time -o times -f %e foo":                   "foo",
		"exec -a name foo":                                   "foo",
		"bash -euo pipefail -c 'foo x'":                      "foo",
		"set -o pipefail; foo":                               "foo",
		"php -d memory_limit=1G /srv/foo.php":                "foo",
		"python3.11 -m foo.bar":                              "foo",
		"sudo -u bob nice -n 5 timeout 9 flock -n lock env A=b sh -c 'foo'": "foo",
	} {
		if got := programOf(command); got != want {
			t.Errorf("%q: %q instead of %q", command, got, want)
		}
	}
}
