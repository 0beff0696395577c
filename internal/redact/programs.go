package redact

import (
	"path"
	"regexp"
	"strings"
)

var (
	// curlLogin is an option of curl for NAME:PASSWORD, which may be one of several letters, and the rest of the word. Letters of options
	// that have a value of their own are not among them.
	curlLogin = regexp.MustCompile(`^(-[#0-46aBfgGiIjJkLlnNOpqRsSvVZ]*[uU]|--(?:proxy-)?user(?:=|$))(.*)`)
	// httpieLogin is that of HTTPie.
	httpieLogin = regexp.MustCompile(`^(-a|--auth(?:=|$))(.*)`)
	// etcdLogin is that of etcdctl.
	etcdLogin = regexp.MustCompile(`^(--user(?:=|$))(.*)`)
	// sshpassPassword is an option of sshpass for a password, and the rest of the word.
	sshpassPassword = regexp.MustCompile(`^(-v*p)(.*)`)
	// sshpassValue are those of its options that have a value in the next word. Another word is the command that gets the password.
	sshpassValue = regexp.MustCompile(`^-v*[fdpP]$`)
	// redisPassword is that of redis-cli and valkey-cli.
	redisPassword = regexp.MustCompile(`^(-a)()$`)
	// mysqlPassword is that of the programs of MySQL. A password in the next word is none, but the name of a database.
	mysqlPassword = regexp.MustCompile(`^(-p)(.+)`)
)

// program is the name of one with an option for a secret; "" is any other.
type program string

// logins are the programs with an option for NAME:PASSWORD. To others -u is a user with a group, or the time zone UTC.
var logins = map[program]*regexp.Regexp{"curl": curlLogin, "http": httpieLogin, "https": httpieLogin, "etcdctl": etcdLogin}

// passwords are those with an option for a password alone. To others -p is a port, and -a is all.
var passwords = map[program]*regexp.Regexp{"sshpass": sshpassPassword, "redis-cli": redisPassword, "valkey-cli": redisPassword,
	"mysql": mysqlPassword, "mysqldump": mysqlPassword, "mysqladmin": mysqlPassword, "mariadb": mysqlPassword,
	"mariadb-dump": mysqlPassword, "mariadb-admin": mysqlPassword}

// programOf returns the program that a word is. Folders have the names of programs too: find /var/lib/mysql -print.
func programOf(word string) program {
	base, _, _ := strings.Cut(path.Base(word), ":") // an image of a container has a tag
	name, folder := program(strings.TrimSuffix(base, ".exe")), path.Dir(word)
	if logins[name] != nil || passwords[name] != nil && (folder == "." || strings.HasSuffix(folder, "bin")) {
		return name
	}
	return ""
}

// after returns the program to which the words behind a word belong.
func (p program) after(word, previous string) program {
	next := programOf(word)
	if next == "" && (p != "sshpass" || strings.HasPrefix(word, "-") || sshpassValue.MatchString(previous)) {
		return p
	}
	return next
}

// hasLogin returns whether a word has NAME:PASSWORD, behind its option in the same word or the one before.
func (p program) hasLogin(word, previous string) bool {
	option := logins[p]
	if option == nil {
		return false
	}
	own, before := option.FindStringSubmatch(word), option.FindStringSubmatch(previous)
	return own != nil && own[2] != "" || before != nil && before[2] == ""
}

// password returns the option for a password that a word is, and the rest of the word. The password is the next word if that is "".
func (p program) password(word string) (option, rest string) {
	if passwords[p] == nil {
		return "", ""
	}
	if found := passwords[p].FindStringSubmatch(word); found != nil {
		return found[1], found[2]
	}
	return "", ""
}

// hasItems returns whether NAME:VALUE is a header.
func (p program) hasItems() bool { return p == "http" || p == "https" }
