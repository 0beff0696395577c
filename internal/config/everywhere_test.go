package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func loadJobs(t *testing.T, text string) *Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(path, Options{Env: environment("SECRET=x")})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func namesOf(jobs []Job) (names []string) {
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	return names
}

// A replica runs an instance of a job with per_tick = "all" for each replica that fits, and publishes the jobs of the files.
func TestForReplicas(t *testing.T) {
	t.Parallel()
	cfg := loadJobs(t, `
[defaults]
schedule = "H 3 * * *"
command = "true"
[jobs.tidy]
per_tick = "all"
env = { TOKEN = "${SECRET}" }
[jobs.zoned]
per_tick = "all"
where = { zone = "a" }
[jobs.alone]
[jobs.tidy-up]
`)
	if got := cfg.Everywhere(); !slices.Equal(got, []string{"tidy", "zoned"}) {
		t.Errorf("everywhere: %v", got)
	}
	none := cfg.ForReplicas(nil, nil)
	if got := namesOf(none.Jobs); !slices.Equal(got, []string{"alone", "tidy-up"}) || len(none.Unplaced()) > 0 { // which replicas there are is not known
		t.Errorf("without replicas %v, unplaced %v", got, namesOf(none.Unplaced()))
	}
	if some := none.ForReplicas([]string{"r1"}, func(j Job) bool { return j.Of == "tidy" }); !slices.Equal(namesOf(some.Unplaced()), []string{"zoned"}) {
		t.Errorf("unplaced %v", namesOf(some.Unplaced()))
	}
	to := none.ForReplicas([]string{"web-2.example", "r1"}, func(j Job) bool { return j.Where["zone"] == "" || j.On == "r1" })
	if got := namesOf(to.Jobs); !slices.Equal(got, []string{"alone", "tidy-up", "tidy@r1", "tidy@web-2.example", "zoned@r1"}) {
		t.Errorf("%v", got)
	}
	if got := to.Unplaced(); len(got) > 0 {
		t.Errorf("unplaced %v", namesOf(got))
	}
	for _, name := range namesOf(to.Jobs) {
		if to.Job(name) == nil {
			t.Errorf("%s is not found", name)
		}
	}
	if j := to.Job("tidy@r1"); j.Of != "tidy" || j.On != "r1" || j.PerTick != 1 || j.Parallel != 1 || j.Digest != cfg.Job("tidy").Digest {
		t.Errorf("%+v", j)
	}
	if to.Digest() != cfg.Digest() || len(to.JobDigests()) != 4 || to.JobDigests()["tidy"] == "" {
		t.Errorf("digests %s, %s, %v", to.Digest(), cfg.Digest(), to.JobDigests())
	}
	if !slices.Equal(namesOf(to.WrittenJobs()), namesOf(cfg.Jobs)) || !slices.Equal(to.Everywhere(), cfg.Everywhere()) {
		t.Errorf("written are %v", namesOf(to.WrittenJobs()))
	}
	if to.Withheld(to.Job("tidy@r1"))["SECRET"] || !to.Withheld(to.Job("alone"))["SECRET"] {
		t.Error("a variable of tidy is withheld from its instance, or given to others")
	}
	plain := loadJobs(t, "[jobs.alone]\nschedule = '@daily'\ncommand = 'true'\n")
	if plain.ForReplicas([]string{"r1"}, func(Job) bool { return true }) != plain {
		t.Error("a configuration without such jobs is changed")
	}
}

// A job that runs everywhere is another one than a job that runs once, and has its word in the settings.
func TestEverywhereIsPartOfTheDigest(t *testing.T) {
	t.Parallel()
	const job = "[jobs.tidy]\nschedule = '@daily'\ncommand = 'true'\n"
	once, all := loadJobs(t, job), loadJobs(t, job+"per_tick = 'all'\n")
	if once.Digest() == all.Digest() || once.Jobs[0].Digest == all.Jobs[0].Digest {
		t.Error("the digests are equal")
	}
	if got := all.Settings.Own["tidy"]["per_tick"]; got != `"all"` {
		t.Errorf("per_tick is %s", got)
	}
}
