package importer

import (
	"strings"
	"testing"
)

// unitOf returns a timer and its service, which has the lines.
func unitOf(lines string) string {
	return "# /x/j.timer\n[Timer]\nOnCalendar=daily\n# /x/j.service\n[Service]\n" + lines + "\n"
}

// TestUnitDetails has forms whose meaning is easily lost: variables of systemd, drop-ins, files of one name, and units that are not the system's.
func TestUnitDetails(t *testing.T) {
	t.Parallel()
	units := Options{Source: "systemd", Timezone: "UTC"}
	checkDetails(t, map[string]detail{
		"units of a user's manager by folder": {units, "", strings.ReplaceAll(unitOf("ExecStart=/bin/x"), "/x/", "/home/a/.config/systemd/user/"), "would run as root", "[jobs.j]\nschedule"},
		"units of a user's manager by target": {units, "", unitOf("ExecStart=/bin/x\n[Install]\nWantedBy=default.target"), "would run as root", ""},
		"units of the system, said above":     {units, "", unitOf("ExecStart=/bin/x"), "without User=, they run as root", ""},
		"a folder of systemd":                 {units, "", unitOf("ExecStart=find ${STATE_DIRECTORY}/cache -delete"), "STATE_DIRECTORY is systemd's", ""},
		"a folder of systemd in a shell":      {units, "", unitOf("ExecStart=/bin/sh -c 'find $STATE_DIRECTORY/cache -delete'"), notCarried, ""},
		"a folder of systemd beside a file":   {units, "", unitOf("EnvironmentFile=/etc/x\nExecStart=find ${CACHE_DIRECTORY}/x -delete"), notCarried, ""},
		"a folder of systemd with its name":   {units, "", unitOf("StateDirectory=app\nExecStart=find ${STATE_DIRECTORY}/cache -delete"), `command = ["find", "/var/lib/app/cache", "-delete"]`, ""},
		"a home without a user":               {units, "", unitOf("ExecStart=/bin/rm -r ${HOME}/x"), "HOME is systemd's", ""},
		"a home with a user":                  {units, "", unitOf("User=app\nExecStart=/bin/rm -r ${HOME}/x"), `exec /bin/rm -r "${HOME}"/x`, ""},
		"a variable without a value":          {units, "", unitOf("ExecStart=/bin/rm -r ${DIR}/x"), "the variable DIR has no value", ""},
		"a variable of a file":                {units, "", unitOf("EnvironmentFile=/etc/x\nExecStart=/bin/rm -r ${DIR}/x"), `exec /bin/rm -r "${DIR}"/x`, "PATH"},
		"a variable that is a program":        {units, "", unitOf("Environment=X=/bin/x\nExecStart=${X} a"), "the name of a program", ""},
		"a variable with quotes":              {units, "", unitOf(`Environment="OPTS=-a 'b c'"` + "\nExecStart=/bin/x $OPTS"), `"-a", "b c"]`, ""},
		"several words from a file":           {units, "", unitOf("EnvironmentFile=/etc/x\nExecStart=/bin/x $OPTS"), "$OPTS becomes several words", ""},
		"a file that wins over variables":     {units, "", unitOf("EnvironmentFile=/etc/x\nEnvironment=A=1\nExecStart=/bin/x"), "the file wins there", ""},
		"a quote inside a word":               {units, "", unitOf(`ExecStart=/bin/echo yay'foo 'bar`), `"yayfoo bar"`, ""},
		"a timer that fires during a run":     {units, "", unitOf("ExecStart=/bin/x"), `overlap = "queue"`, ""},
		"a comment like a header":             {units, "", "# /x/j.timer\n[Timer]\n# /etc/backup.conf\nOnCalendar=daily\n# /x/j.service\nPersistent=true\n# /x/j.service\n[Service]\nExecStart=/bin/x\n", "catch_up = \"latest\"", "not carried:"},
		"a drop-in of no unit":                {units, "", unitOf("ExecStart=/bin/x") + "# /x/k.timer.d/a.conf\n[Timer]\nOnCalendar=hourly\n", "Carried: 1. Not carried: 1", ""},
		"a drop-in of an instance":            {units, "", "# /x/d@a.timer\n[Timer]\nOnCalendar=daily\n# /x/d@.service\n[Service]\nExecStart=/bin/x %i\n# /x/d@a.service.d/u.conf\n[Service]\nUser=app\n", `user = "app"`, "not carried:"},
		"a drop-in of all services":           {units, "", unitOf("ExecStart=/bin/x") + "# /x/service.d/a.conf\n[Service]\nUser=app\n", `user = "app"`, "not carried:"},
		"the same name in two ranks":          {units, "", strings.ReplaceAll(unitOf("ExecStart=/bin/x"), "/x/", "/etc/") + "# /usr/lib/j.service\n[Service]\nExecStart=/bin/y\n", `["/bin/x"]`, "/bin/y"},
		"the same name in two folders":        {units, "", unitOf("ExecStart=/bin/x") + "# /y/j.service\n[Service]\nExecStart=/bin/y\n", "of the same name", ""},
		"a masked service":                    {units, "", "# /x/j.timer\n[Timer]\nOnCalendar=daily\n# /etc/j.service\n# /usr/lib/j.service\n[Service]\nExecStart=/bin/y\n", notCarried, ""},
		"times of a refused timer":            {units, "", "# /x/j.timer\n[Timer]\nOnCalendar=*-*~01\nOnBootSec=5min\nPersistent=true\n# /x/j.service\n[Service]\nExecStart=/bin/x --token=hunter2\n", "/x/j.timer: OnBootSec=5min\n# /x/j.timer: OnCalendar=*-*~01\n# /x/j.timer: Persistent=true\n# not carried: it holds", "hunter2"},
		"a secret among the times":            {units, "", "# /x/j.timer\n[Timer]\nOnCalendar=hourly\nX-Token=hunter2\n# /x/j.service\n[Service]\nExecStart=/bin/x\n", "/x/j.timer: OnCalendar=hourly\n# not carried: it holds", "hunter2"},
		"a template from systemctl cat":       {units, "", "# /x/d@.timer\n[Timer]\nOnCalendar=daily\n# /x/d@.service\n[Service]\nExecStart=/bin/x %i\n", "also in the output of systemctl cat", ""},
	})
}
