package embed

import (
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/oidc"
)

// SignIn configures an OpenID Connect provider at which people sign in.
type SignIn = oidc.Config

// SignInRule gives a role to those who are in a group, or have a claim with a value.
type SignInRule = oidc.Rule

// provider returns the identity provider; nil without SignIn.
func (c *Config) provider() (*oidc.Provider, error) {
	if c.SignIn == nil {
		return nil, nil
	}
	if !c.Tokens || c.Address == "" {
		return nil, kernel.Invalid("embed: SignIn needs Tokens and Address")
	}
	at := *c.SignIn
	base := strings.TrimSuffix(c.Address, "/") + c.Base
	at.Callback, at.SignOut, at.Logger = base+"/login/callback", base+"/login", c.Logger
	return oidc.New(at)
}
