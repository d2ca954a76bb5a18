module github.com/carillon-scheduler/carillon/jobs/schedule/peers

go 1.26.0

require (
	github.com/adhocore/gronx v1.20.4
	github.com/carillon-scheduler/carillon v0.0.0
	github.com/reugn/go-quartz v0.15.2
	github.com/robfig/cron/v3 v3.0.1
)

replace github.com/carillon-scheduler/carillon => ../../..
