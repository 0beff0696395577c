package redact

import (
	"path"
	"regexp"
	"strings"
)

var (
	// curlLogin matches the option of curl for NAME:PASSWORD, and the rest of the word. Other one-letter options may precede u in the word if they take no
	// value.
	curlLogin = regexp.MustCompile(`^(-[#0-46aBfgGiIjJkLlnNOpqRsSvVZ]*[uU]|--(?:proxy-)?user(?:=|$))(.*)`)
	// httpieLogin matches the option of HTTPie for NAME:PASSWORD, and the rest of the word.
	httpieLogin = regexp.MustCompile(`^(-a|--auth(?:=|$))(.*)`)
	// etcdLogin matches the option of etcdctl for NAME:PASSWORD, and the rest of the word.
	etcdLogin = regexp.MustCompile(`^(--user(?:=|$))(.*)`)
	// sshpassPassword matches the option of sshpass for a password, and the rest of the word.
	sshpassPassword = regexp.MustCompile(`^(-v*p)(.*)`)
	// sshpassValue matches the options of sshpass whose value is the next word. That word is not the command that sshpass runs.
	sshpassValue = regexp.MustCompile(`^-v*[fdpP]$`)
	// redisPassword matches the option of redis-cli and valkey-cli for a password.
	redisPassword = regexp.MustCompile(`^(-a)()$`)
	// mysqlPassword matches the option of MySQL programs for a password in the same word. After -p alone, the next word is the name of a database.
	mysqlPassword = regexp.MustCompile(`^(-p)(.+)`)
)

// program is the name of a program that has an option for a secret. It is "" for other programs.
type program string

// logins maps programs to their option for NAME:PASSWORD. In other programs, -u is a user with a group, or the time zone UTC.
var logins = map[program]*regexp.Regexp{"curl": curlLogin, "http": httpieLogin, "https": httpieLogin, "etcdctl": etcdLogin}

// passwords maps programs to their option for a password alone. In other programs, -p is a port and -a means all.
var passwords = map[program]*regexp.Regexp{"sshpass": sshpassPassword, "redis-cli": redisPassword, "valkey-cli": redisPassword,
	"mysql": mysqlPassword, "mysqldump": mysqlPassword, "mysqladmin": mysqlPassword, "mariadb": mysqlPassword,
	"mariadb-dump": mysqlPassword, "mariadb-admin": mysqlPassword}

// programOf returns the program that a word names, or "". It ignores folders with the name of a program, as in "find /var/lib/mysql -print".
func programOf(word string) program {
	base, _, _ := strings.Cut(path.Base(word), ":") // the word may be a container image with a tag
	name, folder := program(strings.TrimSuffix(base, ".exe")), path.Dir(word)
	if logins[name] != nil || passwords[name] != nil && (folder == "." || strings.HasSuffix(folder, "bin")) {
		return name
	}
	return ""
}

// nextProgram returns the program to which the words after a word belong. previous is the word before it.
func (p program) nextProgram(word, previous string) program {
	next := programOf(word)
	if next == "" && (p != "sshpass" || strings.HasPrefix(word, "-") || sshpassValue.MatchString(previous)) {
		return p
	}
	return next
}

// hasLogin reports whether a word contains NAME:PASSWORD. Its option may be in the same word or in the previous one.
func (p program) hasLogin(word, previous string) bool {
	option := logins[p]
	if option == nil {
		return false
	}
	own, before := option.FindStringSubmatch(word), option.FindStringSubmatch(previous)
	return own != nil && own[2] != "" || before != nil && before[2] == ""
}

// splitPassword splits a word into the option for a password and the password. If the second part is "", the password is the next word. If the word has no
// such option, both are "".
func (p program) splitPassword(word string) (option, rest string) {
	if passwords[p] == nil {
		return "", ""
	}
	if found := passwords[p].FindStringSubmatch(word); found != nil {
		return found[1], found[2]
	}
	return "", ""
}

// hasItems reports whether the program takes headers in the form NAME:VALUE without an option.
func (p program) hasItems() bool { return p == "http" || p == "https" }
