// Package auth says who asks a server, and what they may do.
//
//	a file of tokens          -> Tokens (tokens.go)        \
//	a client's certificate    -> Subject (certificates.go)  -> Identity: tenant, role, name
//	who asks from this machine   Gate.Local                /
//	a request -> Guard (guard.go): was it meant for this server?
//	          -> Gate (gate.go): who is it? may they? not too often? -> its context holds the Identity
//
// A role is what somebody is for, a tenant whose windows and profiles they see.
package auth

import (
	"context"
	"fmt"
	"regexp"
)

// Role is what somebody may do.
type Role string

// The roles.
const (
	Agent    Role = "agent"    // ship windows, get orders
	Relay    Role = "relay"    // what agents may, for many of them, and have them ship to it
	Reader   Role = "reader"   // ask
	Operator Role = "operator" // change what is recorded, and all of the above
)

// May tells whether a role is enough where another is needed.
func (r Role) May(needed Role) bool {
	return r == needed || r == Operator || r == Relay && needed == Agent
}

// ParseRole reads a role.
func ParseRole(s string) (Role, error) {
	switch r := Role(s); r {
	case Agent, Relay, Reader, Operator:
		return r, nil
	}
	return "", fmt.Errorf("role %.40q: want %s, %s, %s or %s", s, Agent, Relay, Reader, Operator)
}

// InsidePath is below what a process tells operators of itself: what it does
// where, as Go's net/http/pprof has it.
const InsidePath = "/debug/pprof/"

// DefaultTenant is who asks where nothing else is said.
const DefaultTenant = "default"

// tenantName is what tenants may be called: they are names of directories, too.
var tenantName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckTenant refuses what no tenant may be called.
func CheckTenant(s string) error {
	if !tenantName.MatchString(s) {
		return fmt.Errorf("tenant %.70q: want up to 63 small letters, digits and dashes, such as team-a", s)
	}
	return nil
}

// Identity is somebody who asks.
type Identity struct {
	Tenant string
	Role   Role
	Name   string // for people and logs
}

type key struct{}

// With has a context hold who asks.
func With(ctx context.Context, who Identity) context.Context {
	return context.WithValue(ctx, key{}, who)
}

// From gives who asks; false: nobody has looked.
func From(ctx context.Context) (Identity, bool) {
	who, ok := ctx.Value(key{}).(Identity)
	return who, ok
}
