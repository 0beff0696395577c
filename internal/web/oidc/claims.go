package oidc

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// emailClaim is the claim with a person's e-mail address. It is used as a name or for roles only if verifiedClaim is true. Otherwise people could enter any
// address.
const emailClaim, verifiedClaim = "email", "email_verified"

// maxName is the maximum number of characters of a name. maxSubject is the limit of the OpenID Connect specification for a subject.
const maxName, maxSubject = 128, 255

// identityOf returns the person that the claims of a verified ID token describe. It refuses a person without a name or a role.
func (c Config) identityOf(subject string, claims map[string]any) (Identity, error) {
	if subject == "" {
		return Identity{}, &RefusedError{Reason: `your ID token has no claim "sub"`}
	}
	if !isPresentable(subject, maxSubject) {
		return Identity{}, &RefusedError{Reason: `the claim "sub" of your ID token is not well-formed`}
	}
	name, reason := c.nameOf(claims)
	if reason != "" {
		return Identity{}, &RefusedError{reason, subject}
	}
	role, reason := c.roleOf(claims)
	if reason != "" {
		return Identity{}, &RefusedError{reason, subject}
	}
	return Identity{name, role, subject}, nil
}

// nameOf returns a person's name, or the reason for which the claims have no valid name.
func (c Config) nameOf(claims map[string]any) (name, reason string) {
	if slices.Contains([]string{c.NameClaim, c.RoleClaim}, emailClaim) && claims[verifiedClaim] != true && claims[verifiedClaim] != "true" {
		return "", `the provider has not verified your e-mail address (claim "email_verified")`
	}
	name, _ = claims[c.NameClaim].(string)
	switch {
	case name == "":
		return "", fmt.Sprintf("your ID token has no claim %q, which has the name", c.NameClaim)
	case !isPresentable(name, maxName):
		return "", fmt.Sprintf("your name in the claim %q has characters that cannot be shown, or more than %d of them", c.NameClaim, maxName)
	}
	return name, ""
}

// elsewhereClaim is the claim that lists claims which the provider left out of the token. Entra ID leaves out the groups of a person with more than 200
// groups.
const elsewhereClaim = "_claim_names"

// roleOf returns the first of [Config.Roles] that the claims give, or the reason for which they give none.
func (c Config) roleOf(claims map[string]any) (role, reason string) {
	values := valuesOf(claims[c.RoleClaim])
	if elsewhere, _ := claims[elsewhereClaim].(map[string]any); len(values) == 0 && elsewhere[c.RoleClaim] != nil {
		return "", fmt.Sprintf("the claim %q has too many values, so the provider has left it out of your ID token (claim %q)", c.RoleClaim, elsewhereClaim)
	}
	if len(values) == 0 {
		return "", fmt.Sprintf("your ID token has no claim %q, which gives the role", c.RoleClaim)
	}
	for _, role := range c.Roles {
		if slices.ContainsFunc(role.Values, func(value string) bool { return slices.Contains(values, value) }) {
			return role.Name, ""
		}
	}
	return "", fmt.Sprintf("no value of your claim %q gives a role here", c.RoleClaim)
}

// isPresentable reports whether a name can be shown unchanged. Other names are refused instead of cleaned, because cleaning could make two names equal.
func isPresentable(name string, most int) bool {
	return utf8.ValidString(name) && utf8.RuneCountInString(name) <= most && strings.TrimSpace(name) == name && !strings.ContainsFunc(name, isInvisible)
}

// isInvisible reports whether a character is invisible, including invisible letters and marks. Two names that differ only in such a character would look the
// same.
func isInvisible(r rune) bool {
	const blankBraille = '\u2800'
	return !unicode.IsPrint(r) || r == blankBraille || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// valuesOf returns the values of a claim that is a string or a list of strings.
func valuesOf(claim any) (values []string) {
	switch claim := claim.(type) {
	case string:
		return []string{claim}
	case []any:
		for _, item := range claim {
			if value, ok := item.(string); ok {
				values = append(values, value)
			}
		}
	}
	return values
}
