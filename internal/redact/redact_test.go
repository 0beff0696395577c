package redact

import (
	"slices"
	"testing"
)

func TestTexts(t *testing.T) {
	mask := Texts([]string{"one-two", "one-two-three", "short", ""})
	for text, want := range map[string]string{
		"-x one-two-three -y one-two -z one-two-four": "-x *** -y *** -z ***-four",
		"short":                           "short",
		"psql postgres://u:hush@h/db?x=1": "psql postgres://***@h/db?x=1",
		"redis://:p@h:6379 https://h/u@v http://h:80/x":       "redis://***@h:6379 https://h/u@v http://h:80/x",
		"git clone https://a-token@h/x":                       "git clone https://***@h/x",
		"run --env=PGPASSWORD=hush --set=db.password=hush -v": "run --env=PGPASSWORD=*** --set=db.password=*** -v",
		`--env="PGPASSWORD=hu sh" --env=A=$B --set=a.b=c`:     `--env="PGPASSWORD=***" --env=A=$B --set=a.b=c`,
		"PGPASSWORD=hush pg_dump":                             "PGPASSWORD=*** pg_dump",
		"run --db-password='hu sh' --level=3":                 "run --db-password=*** --level=3",
		`API_KEY="hu sh"; curl 'https://h/?token=hush&n=1'`:   "API_KEY=***; curl 'https://h/?token=***&n=1'",
		`--password=$PASSWORD --password="${PASSWORD}" PWD=/`: `--password=$PASSWORD --password="${PASSWORD}" PWD=/`,
		"monkey=3 --monkey=4 keyboard=5":                      "monkey=3 --monkey=4 keyboard=5",
	} {
		if got := mask(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestHeaders has the forms in which commands pass secrets to servers.
func TestHeaders(t *testing.T) {
	mask := Texts(nil)
	for text, want := range map[string]string{
		`curl -H "Authorization: Bearer hu sh" https://h/x`:            `curl -H "Authorization: ***" https://h/x`,
		`curl -H 'authorization:Basic hush' https://h/x`:               `curl -H 'authorization:***' https://h/x`,
		`curl -H 'X-Api-Key: hush' -H "Accept: text/html" h:80`:        `curl -H 'X-Api-Key: ***' -H "Accept: text/html" h:80`,
		`curl -H X-Auth-Token:hush h`:                                  `curl -H X-Auth-Token:*** h`,
		`curl --header="Cookie: a=hush; b=hush" h`:                     `curl --header="Cookie: ***" h`,
		`curl -H "Authorization: Bearer $TOKEN" h`:                     `curl -H "Authorization: Bearer $TOKEN" h`,
		`curl -H "X-Api-Key: ${KEY}" h`:                                `curl -H "X-Api-Key: ${KEY}" h`,
		`wget --header Authorization:\ Bearer\ x vault-token:8200`:     `wget --header Authorization:*** vault-token:8200`,
		`gh auth bearer hush; ring-bearer: x`:                          `gh auth bearer ***; ring-bearer: x`,
		`curl -u user:hush h`:                                          `curl -u user:*** h`,
		`curl --user 'user:hu sh' h`:                                   `curl --user 'user:***' h`,
		`curl -u "user:hush" --proxy-user=p:hush h`:                    `curl -u "user:***" --proxy-user=p:*** h`,
		`curl -u user:$PASSWORD h`:                                     `curl -u user:$PASSWORD h`,
		`docker run -u 1000:1000 --user 7:7 app`:                       `docker run -u 1000:1000 --user 7:7 app`,
		`curl -u user: -url:x h`:                                       `curl -u user: -url:*** h`,
		`docker run --rm curlimages/curl:8.10.1 -u ann:hush https://h`: `docker run --rm curlimages/curl:8.10.1 -u ann:*** https://h`,
		`etcdctl --user root:hush snapshot save f`:                     `etcdctl --user root:*** snapshot save f`,
		`etcdctl --user=root:hush get k`:                               `etcdctl --user=root:*** get k`,
		`curl -H 'X-Api-Key:123456' h`:                                 `curl -H 'X-Api-Key:***' h`,
		`openssl pkcs12 -in x -passin pass:hush -passout pass:hush`:    `openssl pkcs12 -in x -passin *** -passout ***`,
		// Harmless words with a colon stay.
		`date -u +%H:%M:%SZ`: `date -u +%H:%M:%SZ`,
		`curl -o "$(date -u +%H:%M:%SZ)" h; date -u +%H:%M`:                                 `curl -o "$(date -u +%H:%M:%SZ)" h; date -u +%H:%M`,
		`docker run -u app:app -v /run/secrets:/run/secrets:ro registry/token-service:v1.2`: `docker run -u app:app -v /run/secrets:/run/secrets:ro registry/token-service:v1.2`,
		`docker run -v "secrets:/run/secrets" x`:                                            `docker run -v "secrets:/run/secrets" x`,
		`rsync token-host:/srv/a /b`:                                                        `rsync token-host:/srv/a /b`,
		`git push -u origin:main; diff -u a:b; sqlmap -u https://h`:                         `git push -u origin:main; diff -u a:b; sqlmap -u https://h`,
		`curl h | docker run -u app:app x`:                                                  `curl h | docker run -u app:app x`,
		`curl -du:x -XPUT:x h`:                                                              `curl -du:x -XPUT:x h`,
		// Logins and headers are words of a shell, which may have several pieces.
		`curl -uann:hush h`:                                        `curl -uann:*** h`,
		`curl -fsSu ann:hush h`:                                    `curl -fsSu ann:*** h`,
		`curl -fsSuann:hush h 2>&1 -u ann:hush`:                    `curl -fsSuann:*** h 2>&1 -u ann:***`,
		`curl -u ann:"hush" h`:                                     `curl -u ann:*** h`,
		`curl -u 'ann':hush h`:                                     `curl -u 'ann':*** h`,
		`curl -u "ann":"hu sh" h`:                                  `curl -u "ann":*** h`,
		`curl -u ann:hu\ sh h`:                                     `curl -u ann:*** h`,
		"curl -s \\\n -u ann:hush h":                               "curl -s \\\n -u ann:*** h",
		`timeout 5 /usr/bin/curl -u ann:hush h`:                    `timeout 5 /usr/bin/curl -u ann:*** h`,
		`curl -u ann:$(cat /run/p) h`:                              `curl -u ann:$(cat /run/p) h`,
		`curl -u ann:$P-hush h`:                                    `curl -u ann:*** h`,
		`curl -u "ann:${P:-hush}" h`:                               `curl -u "ann:***" h`,
		`sh -c 'curl -u ann:hush h' 'b'`:                           `sh -c 'curl -u ann:*** h' 'b'`,
		`sh -c "curl -H \"X-Api-Key: hush\" h"`:                    `sh -c "curl -H \"X-Api-Key: ***\" h"`,
		`x=$(curl -u ann:hush h)`:                                  `x=$(curl -u ann:*** h)`,
		`(curl -u ann:hush h)`:                                     `(curl -u ann:*** h)`,
		`http h X-Api-Key:"hush" token-host:80`:                    `http h X-Api-Key:*** token-host:80`,
		`http -a ann:hush h`:                                       `http -a ann:*** h`,
		`curl -H 'Authorization: Bearer '"hush" h`:                 `curl -H 'Authorization: ***' h`,
		`curl -H "Authorization: Bearer "hush h`:                   `curl -H "Authorization: ***" h`,
		`curl -H "Cookie: $A; session=hush" h`:                     `curl -H "Cookie: ***" h`,
		`curl -H"X-Api-Key: hush" -H "X-Api-Key: $(cat "/a b")" h`: `curl -H"X-Api-Key: ***" -H "X-Api-Key: $(cat "/a b")" h`,
		// An option has its value in the next word.
		`run --token hush --password "hu sh" --password "" --secret $S --token -v; x`: `run --token *** --password "***" --password "" --secret $S --token -v; x`,
		`echo Authorization: Basic hush >> f; cat <<x`:                                `echo Authorization: Basic *** >> f; cat <<x`,
		`echo password: hush, key: $K level: 3`:                                       `echo password: *** key: $K level: 3`,
		`run --password < file`:                                                       `run --password < file`,
		`it's --fine: don't "stop`:                                                    `it's --fine: don't "stop`,
		`curl -d '{"password": "hu \"sh", "user":"u"}' h`:                             `curl -d '{"password": "***", "user":"u"}' h`,
		`curl -d "{\"api_key\":\"hush\",\"n\":1}" h`:                                  `curl -d "{\"api_key\":\"***\",\"n\":1}" h`,
		`{"db.password" : 1234, "token": null}`:                                       `{"db.password" : ***, "token": ***}`,
		`{"secret": {"name": "n"}, "token": "$T"}`:                                    `{"secret": {"name": "n"}, "token": "$T"}`,
		`{"Authorization": "Bearer hush"}`:                                            `{"Authorization": "***"}`,
		`at 12:30 https://h:80/a:b c:d key:`:                                          `at 12:30 https://h:80/a:b c:d key:`,
		`""`:                                                                          `""`,
	} {
		if got := mask(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestAssignments has values of several pieces, which are one word of a shell.
func TestAssignments(t *testing.T) {
	mask := Texts(nil)
	for text, want := range map[string]string{
		`TOKEN=abc"def ghi" cmd`:                                         `TOKEN=*** cmd`,
		`PASSWORD=hu"sh"`:                                                `PASSWORD=***`,
		`PASSWORD='hu'sh'hu sh'; x`:                                      `PASSWORD=***; x`,
		`PASSWORD=hu\ sh x`:                                              `PASSWORD=*** x`,
		`PASSWORD="hu \"sh" x`:                                           `PASSWORD=*** x`,
		`run --token=hu'sh sh' --env=TOKEN=hu"sh" -v`:                    `run --token=*** --env=TOKEN=*** -v`,
		`sh -c 'TOKEN=abc"def ghi" cmd' x`:                               `sh -c 'TOKEN=*** cmd' x`,
		`sh -c "TOKEN=abc\"def ghi\" cmd" x`:                             `sh -c "TOKEN=*** cmd" x`,
		`sh -c "TOKEN=abc'def ghi' cmd" x`:                               `sh -c "TOKEN=*** cmd" x`,
		`x=$(TOKEN=abc"def ghi" cmd)`:                                    `x=$(TOKEN=*** cmd)`,
		`curl 'https://h/?token=hush' -H 'X: y'`:                         `curl 'https://h/?token=***' -H 'X: y'`,
		`curl "https://h/?token=hush&n=1" "b"`:                           `curl "https://h/?token=***&n=1" "b"`,
		`curl https://h/?token=hu"sh sh" b`:                              `curl https://h/?token=*** b`,
		`curl https://token-host/?n="1"`:                                 `curl https://token-host/?n="1"`,
		`--env="TOKEN=hu \"sh x\"" x`:                                    `--env="TOKEN=***" x`,
		`TOKEN= cmd; TOKEN=`:                                             `TOKEN= cmd; TOKEN=`,
		`run -e "DB_PASSWORD=hush hush" img`:                             `run -e "DB_PASSWORD=***" img`,
		`env 'TOKEN=hu sh' x "y z"`:                                      `env 'TOKEN=***' x "y z"`,
		`curl -d 'n=1&password=hu sh' "b"`:                               `curl -d 'n=1&password=***' "b"`,
		`rsync -e "sshpass -p hush ssh -o PasswordAuthentication=yes" a`: `rsync -e "sshpass -p *** ssh -o PasswordAuthentication=***" a`,
		`mysql -e "DELETE FROM s WHERE token_used=0 AND n < now()"`:      `mysql -e "DELETE FROM s WHERE token_used=*** AND n < now()"`,
		`grep -e 'password=' f`:                                          `grep -e 'password=' f`,
		`aws s3 sync /data/private/dt=1 s3://auth/y=2`:                   `aws s3 sync /data/private/dt=1 s3://auth/y=2`,
		`run -e "A=x y" -e "TOKEN=$T" "b"`:                               `run -e "A=x y" -e "TOKEN=$T" "b"`,
		`don't TOKEN='hu sh' x`:                                          `don't TOKEN=*** x`,
		`TOKEN=$A"$B" TOKEN="$(cat "/a b")" A=x"y z"`:                    `TOKEN=$A"$B" TOKEN="$(cat "/a b")" A=x"y z"`,
		`A='x y' LEVEL=3 "TOKEN" ==`:                                     `A='x y' LEVEL=3 "TOKEN" ==`,
	} {
		if got := mask(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestPasswords has programs with an option for a password alone.
func TestPasswords(t *testing.T) {
	mask := Texts(nil)
	for text, want := range map[string]string{
		`sshpass -p hush ssh -p 22 h`:                     `sshpass -p *** ssh -p 22 h`,
		`sshpass -phush ssh -p22 h`:                       `sshpass -p*** ssh -p22 h`,
		`sshpass -p 'hu sh' scp -P 22 a h:`:               `sshpass -p '***' scp -P 22 a h:`,
		`sshpass -p"hu"sh ssh h`:                          `sshpass -p*** ssh h`,
		`sshpass -v -e ssh -p 22 h`:                       `sshpass -v -e ssh -p 22 h`,
		`sshpass -f /run/p ssh -p 22 h`:                   `sshpass -f /run/p ssh -p 22 h`,
		`sshpass -P phrase -p hush ssh h`:                 `sshpass -P phrase -p *** ssh h`,
		`sshpass -p "$P" ssh h`:                           `sshpass -p "$P" ssh h`,
		`sshpass -p$P ssh h`:                              `sshpass -p$P ssh h`,
		`redis-cli -h h -a hush ping`:                     `redis-cli -h h -a *** ping`,
		`valkey-cli --pass hush --user a ping`:            `valkey-cli --pass *** --user a ping`,
		`redis-cli -a $P ping; ls -a x`:                   `redis-cli -a $P ping; ls -a x`,
		`docker exec r redis-cli -a "hu sh" ping`:         `docker exec r redis-cli -a "***" ping`,
		`mysql -u root -phush db`:                         `mysql -u root -p*** db`,
		`mariadb -p'hu sh' db`:                            `mariadb -p*** db`,
		`/usr/bin/mysqldump "-phu sh" db | gzip -c`:       `/usr/bin/mysqldump "-p***" db | gzip -c`,
		`sh -c "mysqladmin -phush ping"`:                  `sh -c "mysqladmin -p*** ping"`,
		`mysql -p db -P3306 --port 3306 -p"$P"`:           `mysql -p db -P3306 --port 3306 -p"$P"`,
		`redis-cli -n 1 get token:abc`:                    `redis-cli -n 1 get token:abc`,
		`find /var/lib/mysql -print`:                      `find /var/lib/mysql -print`,
		`mkdir -p x; nc -p22; docker run -p80:80 mysql:8`: `mkdir -p x; nc -p22; docker run -p80:80 mysql:8`,
	} {
		if got := mask(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, tt := range []struct{ argv, want []string }{
		{[]string{"sshpass", "-p", "hu sh", "ssh", "-p", "22"}, []string{"sshpass", "-p", "***", "ssh", "-p", "22"}},
		{[]string{"redis-cli", "-a", "hu'sh", "ping"}, []string{"redis-cli", "-a", "***", "ping"}},
		{[]string{"mysql", "-phu sh", "-p", "db"}, []string{"mysql", "-p***", "-p", "db"}},
	} {
		if got := Arguments(tt.argv, mask); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.argv, got, tt.want)
		}
	}
}

func TestSecretNames(t *testing.T) {
	for name, want := range map[string]bool{
		"DB_PASSWORD": true, "PASSWD": true, "MYSQL_PWD": true, "GITHUB_TOKEN": true, "SSH_KEY": true, "key": true, "APIKEY": true, "SENTRY_DSN": true,
		"PWD": false, "OLDPWD": false, "KEYBOARD": false, "HOME": false, "AUTHOR": false, "COMPASS": false, "PGPASSFILE": false, "AWS_SECRET_ACCESS_KEY": true, "MONKEY": false,
	} {
		if got := SecretName(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestArguments(t *testing.T) {
	got := Arguments([]string{"run", "--token", "hush", "--token", "-v", "--api-key", "$KEY", "token", "list", "--name=x", "PASSWORD=y", "--password=hu sh; sh", "--secret=$S", "PGPASSWORD=two words; x", "--env=PASSWORD=a b"}, Texts(nil))
	if want := []string{"run", "--token", "***", "--token", "-v", "--api-key", "$KEY", "token", "list", "--name=x", "PASSWORD=***", "--password=***", "--secret=$S", "PGPASSWORD=***", "--env=PASSWORD=***"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	got = Arguments([]string{"curl", "-H", "X-Api-Key: hu sh; x", "-HAuthorization: Bearer hush", "--header=Cookie: hush", "-u", "user:hu sh", "--user", "7:7", "-u", "user:$P", "-d", `{"password": "hush"}`, "https://h:80/", "-u"}, Texts(nil))
	if want := []string{"curl", "-H", "X-Api-Key: ***", "-HAuthorization: ***", "--header=Cookie: ***", "-u", "user:***", "--user", "7:***", "-u", "user:$P", "-d", `{"password": "***"}`, "https://h:80/", "-u"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	got = Arguments([]string{"curl", "-fsSu", "o'neil:hush", "-uann:hu sh", "--user=ann:hush", "-HX-Api-Key:hush"}, Texts(nil))
	if want := []string{"curl", "-fsSu", "o'neil:***", "-uann:***", "--user=ann:***", "-HX-Api-Key:***"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	got = Arguments([]string{"curl", "-d", "user[password]=hush", "-d", "user%5Bpassword%5D=hush", "helm", "--set", "auth.passwords[0]=hush"}, Texts(nil))
	if want := []string{"curl", "-d", "user[password]=***", "-d", "user%5Bpassword%5D=***", "helm", "--set", "auth.passwords[0]=***"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for _, harmless := range [][]string{{"date", "-u", "+%H:%M:%SZ"}, {"docker", "run", "-u", "app:app", "-v", "secrets:/run/secrets", "token-service:v1.2"}, {"rsync", "token-host:/srv/a"}} {
		if got := Arguments(harmless, Texts(nil)); !slices.Equal(got, harmless) {
			t.Errorf("%q", got)
		}
	}
}
