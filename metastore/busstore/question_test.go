package busstore

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// asked is a store that notes the arguments of its reads.
type asked struct {
	metastore.Store
	last []any
}

func (a *asked) note(args ...any) { a.last = args }

// Each field of each query, and each argument of each read, reaches the store behind a bus as its caller set it.
func TestQuestionsAreWhole(t *testing.T) {
	hub, noted := membus.New(), new(asked)
	if err := Serve(t.Context(), hub.As(node), noted, Config{}); err != nil {
		t.Fatal(err)
	}
	far := reflect.ValueOf(Patient(New(hub.As(node), node)))
	reader := reflect.TypeFor[metastore.Reader]()
	for i := range reader.NumMethod() {
		method := reader.Method(i)
		for _, sent := range arguments(method.Type) {
			args := []reflect.Value{reflect.ValueOf(t.Context())}
			want := []any{}
			for _, a := range sent {
				args, want = append(args, a), append(want, a.Interface())
			}
			noted.last = nil
			far.MethodByName(method.Name).Call(args)
			if noted.last == nil {
				noted.last = []any{}
			}
			if !reflect.DeepEqual(noted.last, want) {
				t.Errorf("%s over the bus\n was asked %+v\n want      %+v", method.Name, noted.last, want)
			}
		}
	}
}

// arguments lists what to call a read with: once with all set, and for each field of a query once with that alone.
func arguments(method reflect.Type) (lists [][]reflect.Value) {
	var all []reflect.Value
	for i := 1; i < method.NumIn(); i++ { // after the context
		v := reflect.New(method.In(i)).Elem()
		set(v)
		all = append(all, v)
	}
	lists = append(lists, all)
	for i, v := range all {
		for f := 0; v.Kind() == reflect.Struct && f < v.NumField(); f++ {
			alone := reflect.New(v.Type()).Elem()
			alone.FieldByName("Tenant").Set(v.FieldByName("Tenant"))
			alone.Field(f).Set(v.Field(f))
			list := slices.Clone(all)
			list[i] = alone
			lists = append(lists, list)
		}
	}
	return lists
}

// set gives a value that is not zero to all of v.
func set(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_800_000_000, 5).UTC()))
		return
	case jobs.ID:
		v.Set(reflect.ValueOf(kernel.DerivedID(v.Type().Name())))
		return
	case jobs.Tenant:
		v.Set(reflect.ValueOf(jobs.DefaultTenant))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			set(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		set(v.Index(0))
		set(v.Index(1))
	case reflect.String:
		v.SetString("some")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(3)
	default:
		panic(fmt.Sprintf("a query has a field of the kind %s: set it here", v.Kind()))
	}
}

func (a *asked) Definition(_ context.Context, tenant jobs.Tenant, key jobs.Key) (*kernel.Definition, error) {
	a.note(tenant, key)
	return nil, kernel.Invalid("noted")
}

func (a *asked) Definitions(_ context.Context, q metastore.DefinitionQuery) ([]*kernel.Definition, error) {
	a.note(q)
	return nil, nil
}

func (a *asked) Run(_ context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	a.note(tenant, id)
	return nil, kernel.Invalid("noted")
}

func (a *asked) Runs(_ context.Context, q metastore.RunQuery) (metastore.Page, error) {
	a.note(q)
	return metastore.Page{}, nil
}

func (a *asked) Ledger(_ context.Context, tenant jobs.Tenant, job jobs.ID, limit int) ([]*kernel.Missed, error) {
	a.note(tenant, job, limit)
	return nil, nil
}

func (a *asked) Counts(_ context.Context, q metastore.CountQuery) (metastore.Counts, error) {
	a.note(q)
	return metastore.Counts{}, nil
}

func (a *asked) History(_ context.Context, tenant jobs.Tenant, job jobs.ID) (*kernel.History, error) {
	a.note(tenant, job)
	return nil, kernel.Invalid("noted")
}

func (a *asked) Global(_ context.Context, tenant jobs.Tenant) (*kernel.Global, error) {
	a.note(tenant)
	return nil, kernel.Invalid("noted")
}

func (a *asked) Tenants(context.Context) ([]*kernel.Global, error) {
	a.note()
	return nil, nil
}

func (a *asked) Token(_ context.Context, tenant jobs.Tenant, id string) (*kernel.Token, error) {
	a.note(tenant, id)
	return nil, kernel.Invalid("noted")
}

func (a *asked) Tokens(_ context.Context, tenant jobs.Tenant) ([]*kernel.Token, error) {
	a.note(tenant)
	return nil, nil
}

func (a *asked) Session(_ context.Context, tenant jobs.Tenant, id string) (*kernel.Session, error) {
	a.note(tenant, id)
	return nil, kernel.Invalid("noted")
}

func (a *asked) Sessions(_ context.Context, tenant jobs.Tenant) ([]*kernel.Session, error) {
	a.note(tenant)
	return nil, nil
}

func (a *asked) Calendars(_ context.Context, tenant jobs.Tenant) ([]*kernel.Calendar, error) {
	a.note(tenant)
	return nil, nil
}

func (a *asked) Occasions(_ context.Context, tenant jobs.Tenant, job jobs.ID, limit int) ([]*kernel.Occasion, error) {
	a.note(tenant, job, limit)
	return nil, nil
}

func (a *asked) Batches(_ context.Context, q metastore.BatchQuery) ([]*kernel.Batch, error) {
	a.note(q)
	return nil, nil
}

func (a *asked) Audits(_ context.Context, q metastore.AuditQuery) ([]*kernel.Audit, error) {
	a.note(q)
	return nil, nil
}

func (a *asked) AlarmSettings(_ context.Context, tenant jobs.Tenant) ([]*kernel.AlarmSettings, error) {
	a.note(tenant)
	return nil, nil
}

func (a *asked) Alarms(_ context.Context, q metastore.AlarmQuery) ([]*kernel.Alarm, error) {
	a.note(q)
	return nil, nil
}
