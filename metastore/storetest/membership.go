package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/metastore"
)

// Membership tests a list of members; open makes an empty one, and its result other is another end of the same.
func Membership(t *testing.T, open func(t *testing.T) (c metastore.Membership, beside func() metastore.Membership)) {
	const long = time.Hour // no lease expires before the test ends
	names := func(t *testing.T, c metastore.Membership) (list []string) {
		t.Helper()
		members, err := c.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range members {
			list = append(list, m.Node)
		}
		return list
	}
	wants := func(t *testing.T, c metastore.Membership, want ...string) {
		t.Helper()
		if got := names(t, c); !slices.Equal(got, want) {
			t.Errorf("members %q, want %q", got, want)
		}
	}
	stay := func(t *testing.T, c metastore.Membership, m metastore.Member, lease time.Duration) {
		t.Helper()
		if err := c.Stay(t.Context(), m, lease); err != nil {
			t.Fatal(err)
		}
	}
	leave := func(t *testing.T, c metastore.Membership, m metastore.Member) {
		t.Helper()
		if err := c.Leave(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	b, a, other := metastore.Member{Node: "b", Nonce: "1"}, metastore.Member{Node: "A", Nonce: "1"}, metastore.Member{Node: "b", Nonce: "2"}

	t.Run("come and go", func(t *testing.T) {
		c, beside := open(t)
		wants(t, c)
		stay(t, c, b, long)
		stay(t, beside(), a, long)
		wants(t, c, "A", "b")
		wants(t, beside(), "A", "b")
		leave(t, c, b)
		leave(t, c, b) // again
		wants(t, beside(), "A")
	})
	t.Run("a lease expires", func(t *testing.T) {
		c, _ := open(t)
		stay(t, c, a, long)
		stay(t, c, b, 200*time.Millisecond)
		for deadline := time.Now().Add(20 * time.Second); len(names(t, c)) > 1; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("a member with an expired lease is still there")
			}
		}
		wants(t, c, "A")
		stay(t, c, b, long) // it was frozen, and is back
		wants(t, c, "A", "b")
	})
	t.Run("since, and fired", func(t *testing.T) {
		c, _ := open(t)
		stay(t, c, b, long)
		member := func() metastore.Member {
			t.Helper()
			list, err := c.Members(t.Context())
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			return list[0]
		}
		first := member()
		b := b
		b.Fired = 7
		stay(t, c, b, long)
		if again := member(); !again.Since.Equal(first.Since) || again.Fired != 7 || again.Nonce != "1" || first.Since.IsZero() {
			t.Errorf("%+v became %+v", first, again)
		}
		stay(t, c, other, long) // it was started again
		if again := member(); !again.Since.After(first.Since) || again.Fired != 0 || again.Nonce != "2" {
			t.Errorf("%+v became %+v", first, again)
		}
		leave(t, c, b) // the earlier one leaves late
		wants(t, c, "b")
	})
}
