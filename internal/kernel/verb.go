package kernel

// Verb numbers the commands. The numbers are part of the wire: add at the end.
type Verb uint8

// The verbs.
const (
	VerbRegister   Verb = 1
	VerbEdit       Verb = 2
	VerbPause      Verb = 3
	VerbResume     Verb = 4
	VerbCreate     Verb = 5
	VerbFire       Verb = 6
	VerbRelease    Verb = 7
	VerbStart      Verb = 8
	VerbFinish     Verb = 9
	VerbReturned   Verb = 10
	VerbCheckpoint Verb = 11
	VerbExpire     Verb = 12
	VerbCancel     Verb = 13
	VerbConfigure  Verb = 14
	VerbLead       Verb = 15
	VerbRefresh    Verb = 16
	VerbForget     Verb = 17
	VerbHand       Verb = 18
	VerbDelete     Verb = 19
	VerbGrant      Verb = 20
	VerbRevoke     Verb = 21
	VerbSignIn     Verb = 22
	VerbSignOut    Verb = 23
	VerbPurgeAudit Verb = 24
	VerbInvite     Verb = 25
	VerbJoin       Verb = 26
	VerbMembers    Verb = 27
	VerbExpand     Verb = 28

	VerbSetCalendar  Verb = 29
	VerbDropCalendar Verb = 30
	VerbDrain        Verb = 31
	VerbMark         Verb = 32
	VerbExpect       Verb = 33
	VerbReport       Verb = 34
	VerbPurge        Verb = 35
	VerbBackfill     Verb = 36
	VerbNotify       Verb = 37

	VerbFinalizeUpgrade Verb = 38
	VerbUnstart         Verb = 39

	VerbSetTenant     Verb = 40
	VerbSuspendTenant Verb = 41
	VerbDeleteTenant  Verb = 42
	VerbDropTenant    Verb = 43

	VerbTouch     Verb = 44
	VerbLedgerKey Verb = 45

	VerbSetAlarmTarget  Verb = 46
	VerbDropAlarmTarget Verb = 47
	VerbSetAlarmRule    Verb = 48
	VerbDropAlarmRule   Verb = 49
	VerbRaiseAlarm      Verb = 50
	VerbEndAlarm        Verb = 51
	VerbSentAlarm       Verb = 52
	VerbPurgeAlarms     Verb = 53

	VerbExported Verb = 54
	VerbDenied   Verb = 55

	VerbOpenBatch  Verb = 56
	VerbCloseBatch Verb = 57

	VerbCheckIn Verb = 58
)

var verbNames = [...]string{"", "register", "edit", "pause", "resume", "create", "fire", "release", "start", "finish", "returned",
	"checkpoint", "expire", "cancel", "configure", "lead", "refresh", "forget", "hand",
	"delete", "grant", "revoke", "signin", "signout", "purgeaudit", "invite", "join", "members",
	"expand", "setcalendar", "dropcalendar", "drain", "mark", "expect", "report", "purge", "backfill", "notify", "finalizeupgrade", "unstart",
	"settenant", "suspendtenant", "deletetenant", "droptenant", "touch", "ledgerkey",
	"setalarmtarget", "dropalarmtarget", "setalarmrule", "dropalarmrule", "raisealarm", "endalarm", "sentalarm", "purgealarms", "exported", "denied", "openbatch", "closebatch", "checkin"}

// NewestVerb is the highest verb that this program knows.
const NewestVerb = Verb(len(verbNames) - 1)

func (v Verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return "?"
}
