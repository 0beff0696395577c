package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEnvironment(t *testing.T) {
	base := []string{"PATH=/bin", "HOME=/root", "LANG=C", "TZ=UTC", "EDITOR=vi", "CRONCLAVE_REDIS=redis://:pw@h", "CRONCLAVE_RUN_ID=outer",
		"DB_PASSWORD=pw", "LAST=1", "LAST=2", "EMPTY=", "nonsense", "=C:=x"}
	taken := map[string]bool{"DB_PASSWORD": true}
	tests := map[string]struct {
		spec EnvSpec
		want []string
	}{
		"inherited, less what is the daemon's": {
			EnvSpec{Base: base, InheritEnv: true, EnvTaken: taken},
			[]string{"EDITOR=vi", "EMPTY=", "HOME=/root", "LANG=C", "LAST=2", "PATH=/bin", "TZ=UTC"},
		},
		"not inherited": {
			EnvSpec{Base: base, EnvTaken: taken},
			[]string{"HOME=/root", "LANG=C", "PATH=/bin", "TZ=UTC"},
		},
		"not inherited, PATH taken": {
			EnvSpec{Base: base, EnvTaken: map[string]bool{"PATH": true}},
			[]string{"HOME=/root", "LANG=C", "TZ=UTC"},
		},
		"the trace of the replica's start is not the job's": {
			EnvSpec{Base: []string{"A=a", "TRACEPARENT=p", "TRACESTATE=s", "BAGGAGE=b"}, InheritEnv: true},
			[]string{"A=a"},
		},
		"the trace of the caller is": {
			EnvSpec{Base: []string{"A=a", "TRACEPARENT=p", "TRACESTATE=s", "BAGGAGE=b"}, InheritEnv: true, KeepTrace: true, Extra: map[string]string{"TRACEPARENT": "own"}},
			[]string{"A=a", "BAGGAGE=b", "TRACEPARENT=own", "TRACESTATE=s"},
		},
		"later parts count": {
			EnvSpec{
				Base: []string{"A=base", "B=base", "C=base", "D=base", "E=base"}, InheritEnv: true,
				EnvFile:     file(t, "B=file\nC=file\nD=file\nE=file\n"),
				Env:         map[string]string{"C": "env", "D": "env", "E": "env"},
				EnvFromFile: map[string]string{"D": file(t, "from file\n"), "E": file(t, "x")},
				Extra:       map[string]string{"E": "extra"},
			},
			[]string{"A=base", "B=file", "C=env", "D=from file", "E=extra"},
		},
		"what the job names itself it gets": {
			EnvSpec{Base: base, EnvTaken: taken, Env: map[string]string{"DB_PASSWORD": "own", "CRONCLAVE_REDIS": "redis://other", "PATH": "/opt"}},
			[]string{"CRONCLAVE_REDIS=redis://other", "DB_PASSWORD=own", "HOME=/root", "LANG=C", "PATH=/opt", "TZ=UTC"},
		},
		"nobody can pretend another run": {
			EnvSpec{Env: map[string]string{"CRONCLAVE_RUN_ID": "false"}, Extra: map[string]string{"CRONCLAVE_RUN_ID": "true"}},
			[]string{"CRONCLAVE_RUN_ID=true"},
		},
		"one newline less": {
			EnvSpec{EnvFromFile: map[string]string{"A": file(t, "a\n\n"), "B": file(t, ""), "C": file(t, "c\r\n"), "D": file(t, " d\ne ")}},
			[]string{"A=a\n", "B=", "C=c", "D= d\ne "},
		},
		"user's": {
			EnvSpec{Base: []string{"HOME=/home/me", "USER=me", "SHELL=/bin/zsh"}, InheritEnv: true, User: "4000000"},
			[]string{"HOME=/", "LOGNAME=4000000", "SHELL=/bin/sh", "USER=4000000"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Environment(t.Context(), tt.spec)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %q, %v\nwant %q", got, err, tt.want)
			}
		})
	}
}

func TestEnvironmentFaultsNeverShowAValue(t *testing.T) {
	const secret = "s3cr3t"
	big := file(t, strings.Repeat(secret, 1<<16))
	tests := map[string]struct {
		spec EnvSpec
		says string
	}{
		"no such file":      {EnvSpec{EnvFromFile: map[string]string{"PGPASSWORD": "/no/such"}}, "env_from_file PGPASSWORD: read /no/such: no such file"},
		"a directory":       {EnvSpec{EnvFromFile: map[string]string{"PGPASSWORD": "/"}}, "is a directory"},
		"too long":          {EnvSpec{EnvFromFile: map[string]string{"PGPASSWORD": big}}, "longer than 128 KiB"},
		"NUL":               {EnvSpec{EnvFromFile: map[string]string{"PGPASSWORD": file(t, secret+"\x00")}}, "value of PGPASSWORD has a NUL"},
		"no such env_file":  {EnvSpec{EnvFile: "/no/such"}, "env_file: read /no/such"},
		"env_file, no name": {EnvSpec{EnvFile: file(t, "A=1\n\n"+secret+"\n")}, ":3: no = in this line"},
		"env_file, quote":   {EnvSpec{EnvFile: file(t, "A='"+secret+"\n")}, ":1: A: the closing ' is missing"},
		"env_file, after":   {EnvSpec{EnvFile: file(t, `A="x"`+secret)}, ":1: A: text after the closing quote"},
		"env_file, name":    {EnvSpec{EnvFile: file(t, secret+" x=1")}, ":1: the text before ="},
		"name":              {EnvSpec{Env: map[string]string{"": secret}}, "can't be a variable's name"},
		"user":              {EnvSpec{User: "nosuchuser"}, "user nosuchuser: no such user"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env, err := Environment(t.Context(), tt.spec)
			if err == nil || env != nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), secret) {
				t.Errorf("got %q, %v, want %q", env, err, tt.says)
			}
		})
	}
}

func TestEnvFile(t *testing.T) {
	path := file(t, "\ufeff# a comment\n\n  A = one two \r\nexport B=x=y # stays\nC='$HOME \\n' # a comment\nD=\"a \\\"b\\\" \\\\ \\$x\\n\\t\"\nE=\nF=''\nA=last\n_g1='it''\n")
	vars, err := (&jobFiles{ctx: t.Context()}).readEnvFile(path)
	if err == nil || !strings.HasPrefix(err.Error(), path+":10: _g1: ") {
		t.Errorf("error %v", err)
	}
	want := map[string]string{"A": "last", "B": "x=y # stays", "C": `$HOME \n`, "D": "a \"b\" \\ $x\n\\t", "E": "", "F": ""}
	for name, value := range want {
		if got, ok := vars[name]; !ok || got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	if len(vars) != len(want) {
		t.Errorf("got %q", vars)
	}
}

func TestEnvFileReportsAllFaults(t *testing.T) {
	path := file(t, "a\nB=1\n1=2\n")
	_, err := (&jobFiles{ctx: t.Context()}).readEnvFile(path)
	if err == nil || strings.Count(err.Error(), path+":") != 2 {
		t.Errorf("got %v", err)
	}
}

func TestEnvFileIsReadEachTime(t *testing.T) {
	path := file(t, "A=1\n")
	for _, want := range []string{"A=1", "A=2"} {
		if got, err := Environment(t.Context(), EnvSpec{EnvFile: path}); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		if err := os.WriteFile(path, []byte("A=2\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPasswdEntry(t *testing.T) {
	passwd := file(t, "root:x:0:0:root:/root:/bin/bash\nodd:x:1\nweb:x:33:33::/var/www:/usr/sbin/nologin\n33:x:34:34::/:\n")
	for name, want := range map[string]string{"root": "/bin/bash", "0": "/bin/bash", "web": "/usr/sbin/nologin", "33": "", "34": ""} {
		if got, err := passwdEntry(passwd, name); err != nil || got[6] != want {
			t.Errorf("%s: %q (%v), want %s", name, got, err, want)
		}
	}
	for file, name := range map[string]string{passwd: "odd", "/no/such": "root"} {
		if got, err := passwdEntry(file, name); !errors.Is(err, errNoEntry) {
			t.Errorf("%s in %s: %q, %v", name, file, got, err)
		}
	}
}
