package web

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
)

// A Role determines what a user may do.
type Role string

// The roles of users.
const (
	RoleViewer   Role = "viewer"   // may see everything, including the metrics
	RoleOperator Role = "operator" // may also trigger, cancel, pause and resume
)

// A User is an authenticated user, or an anonymous client.
type User struct {
	Name string
	Role Role
}

// MayAct reports whether the user may trigger, cancel, pause and resume.
func (u User) MayAct() bool { return u.Role == RoleOperator }

// anonymous is the user of all requests if neither tokens nor a provider are configured. Such a server listens only on this machine, but any user and any job
// of the machine can reach it.
var anonymous = User{Name: "anonymous", Role: RoleViewer}

type userKey struct{}

// UserOf returns the user of a request from the request's context.
func UserOf(ctx context.Context) User {
	u, _ := ctx.Value(userKey{}).(User)
	return u
}

// Users are the users with tokens. Only hashes of the tokens are kept.
type Users []userToken

type userToken struct {
	User
	hash [sha256.Size]byte
}

// minTokenLength is the minimum length of a token, in bytes. A random token of this length cannot be guessed by sending requests.
const minTokenLength = 16

// ParseUsers parses the token file. Each line is NAME:ROLE:HASH, and HASH is the SHA-256 of the token as 64 hexadecimal digits. Empty lines and lines that
// begin with # are skipped. A file with a single word that has no colon is itself a token, for a viewer named "token". Errors contain no token and no hash.
func ParseUsers(text string) (Users, error) {
	if token := strings.TrimSpace(text); !strings.ContainsAny(token, ":#\n") {
		return parseSingleToken(token)
	}
	var users Users
	names := map[string]int{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		u, err := parseUser(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if first, twice := names[u.Name]; twice {
			return nil, fmt.Errorf("line %d: %s is on line %d already; give each token a name of its own", i+1, u.Name, first)
		}
		names[u.Name] = i + 1
		users = append(users, u)
	}
	if len(users) == 0 {
		return nil, fmt.Errorf("no line has a token; write NAME:ROLE:HASH")
	}
	return users, nil
}

func parseSingleToken(token string) (Users, error) {
	switch {
	case token == "":
		return nil, fmt.Errorf("it is empty: write a token into it, or lines of NAME:ROLE:HASH")
	case strings.ContainsAny(token, " \t\r"):
		return nil, fmt.Errorf("it has more than one word: write only the token into it, or lines of NAME:ROLE:HASH")
	case len(token) < minTokenLength:
		return nil, fmt.Errorf("a token of %d characters can be guessed; write %d or more, as of: openssl rand -hex 32", len(token), minTokenLength)
	}
	return Users{{User{"token", RoleViewer}, sha256.Sum256([]byte(token))}}, nil
}

func parseUser(line string) (u userToken, err error) {
	name, rest, _ := strings.Cut(line, ":")
	role, text, cut := strings.Cut(rest, ":")
	if !cut || !isUserName(name) {
		return u, fmt.Errorf("it must be NAME:ROLE:HASH, the name of letters, digits and . _ - @")
	}
	u.User = User{name, Role(role)}
	if u.Role != RoleViewer && u.Role != RoleOperator { // the error omits the field: it may be a misplaced token
		return u, fmt.Errorf("the second field must be viewer or operator")
	}
	hash, err := hex.DecodeString(text)
	if err != nil || len(hash) != sha256.Size {
		return u, fmt.Errorf("the hash of %s is not 64 hexadecimal digits; write the SHA-256 of its token, as of: printf %%s \"$TOKEN\" | sha256sum", name)
	}
	copy(u.hash[:], hash)
	for _, empty := range []string{"", "\n"} { // the hashes that result from an unset variable
		if u.hash == sha256.Sum256([]byte(empty)) {
			return u, fmt.Errorf("the hash of %s is that of an empty token; write that of a token of %d characters or more", name, minTokenLength)
		}
	}
	return u, nil
}

func isUserName(name string) bool {
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-@", r)
	})
}

// Find returns the user with a token. Its duration is the same for known and unknown tokens.
func (us Users) Find(token string) (found User, ok bool) {
	u := us.findToken(token)
	if u == nil || token == "" {
		return User{}, false
	}
	return u.User, true
}

func (us Users) findToken(token string) (found *userToken) {
	hash := sha256.Sum256([]byte(token))
	for i := range us {
		if subtle.ConstantTimeCompare(hash[:], us[i].hash[:]) == 1 {
			found = &us[i]
		}
	}
	return found
}
