/* The record of an operation, and N processes that want the operation done once. A process may rest at any step (it is slow, or frozen
   beyond its lease) and may die. A call may fail: it never arrives, its answer is lost, or it is carried out later. CLAIMS are granted in
   all; a claim's number is its owner's and its result's. Retention does not pass. The number of a promise is that of docs/invariants.md;
   FAULT=n plants a fault that breaks promise n, and leaves the others unchecked. FAULT=0 is the model. With FAULT=-1 no call fails. */
mtype = { absent, running, abandoned, done, acquired, ok, lost, silence, Acquire, Renew, Complete, Release, Abandon };
mtype state = absent;			/* of the record, which has an owner, an attempt, a lease and a result, too */
byte owner, attempt, result;
bool passed;				/* the lease has */
bool uncertain;				/* the policy: an abandoned operation is not taken over */
mtype stray; byte strayed;		/* a call that has failed and is still under way, and its claim */
byte claims, live, last, stored;	/* granted; the one whose run goes on; the highest attempt that is remembered; the first result */

#define promise(n, x) assert(FAULT != 0 && FAULT != n || (x))
#define lapsed (state == abandoned || state == running && passed)
#define takes (lapsed && !uncertain || lapsed && FAULT == 7 || state == running && FAULT == 1 || state == done && passed && FAULT == 4)
#define mine (state == running && (owner == c || what == Complete && FAULT == 3))
#define kept (state == done && result == c)

inline carry(what, heard) {		/* the store carries out a call of claim c in one step, and answers a */
	if
	:: what == Acquire && (state == absent || takes) ->
		promise(1, live == 0); promise(2, attempt + 1 > last); promise(7, !uncertain || last == 0);
		claims++; c = claims; owner = c; live = c; attempt++; last = attempt; state = running; passed = false; a = acquired
	:: what == Acquire && state != absent && !takes -> a = (lapsed -> abandoned : state); c = (state == done && heard -> result : 0)
	:: what == Renew && mine -> passed = false; a = ok
	:: what == Complete && mine -> promise(3, owner == c); state = done; result = c; stored = c; live = 0; a = ok
	:: what == Release && mine && attempt == 1 -> state = absent; attempt = 0; last = 0; owner = 0; live = 0; passed = false; a = ok
	:: what == Release && mine && attempt > 1 -> owner = 0; live = 0; passed = false; a = ok;
		if :: FAULT == 2 -> state = absent; attempt = 0 :: else -> state = abandoned fi
	:: what == Abandon && mine -> state = abandoned; owner = 0; live = 0; passed = false; a = ok
	:: what != Acquire && !mine -> a = lost
	fi;
	promise(4, stored == 0 || state == done && result == stored);
	printf("%e %d %e %d %d %d\n", what, c, a, attempt, result, heard)
}

inline call(what) {
	atomic { if
	:: carry(what, 1)
	:: FAULT >= 0 -> carry(what, 0); a = silence					/* the answer is lost */
	:: FAULT >= 0 && stray == 0 -> stray = what; strayed = c; a = silence		/* it is carried out later */
	:: FAULT >= 0 -> a = silence							/* or never */
	fi }
}

proctype process() {
	mtype a, how; byte c; bool again;	/* its claim, 0: none; and how its run has ended, 0: it goes on */
end:	do
	:: atomic { c == 0 && (state == done || claims < CLAIMS) -> call(Acquire);
		if
		:: a == acquired -> skip
		:: a == done -> promise(5, kept); c = 0				/* a duplicate gets the result */
		:: a == silence && c != 0 -> how = Release			/* the claim was made, and nobody runs */
		:: else -> c = 0
		fi; a = 0 }
	:: atomic { c != 0 -> c = 0; how = 0 }					/* it dies */
	:: atomic { c != 0 -> call(Renew); a = 0 }
	:: atomic { c != 0 ->
		if :: how == 0 -> how = Complete :: how == 0 -> how = Release :: how == 0 -> how = Abandon :: how != 0 -> again = true fi;
		call(how);
		if
		:: a == silence && !(FAULT == 15 && live != c) -> skip		/* late settlement: whatever it has answered, it tries again */
		:: a == ok && how == Complete || a == lost && again && kept && FAULT != 18 || a == lost && FAULT == 5 ->
			promise(5, kept); c = 0; how = 0			/* its callers get the result */
		:: a == ok && how != Complete -> c = 0; how = 0
		:: else -> promise(15, !(state == running && owner == c)); promise(18, !kept); c = 0; how = 0
		fi; a = 0; again = false }
	od
}

proctype network() {
	mtype a; byte c;
end:	do :: atomic { stray != 0 -> c = strayed; carry(stray, 0); stray = 0; strayed = 0; a = 0; c = 0 } od
}

proctype clock() {		/* a run ends no later than its lease (13) */
end:	do :: atomic { state == running && !passed -> passed = true; live = 0; printf("passed\n") } od
}

init {
	byte i;
	atomic {
		if :: uncertain = true :: skip fi;
		printf("uncertain %d\n", uncertain);
		run clock(); run network();
		for (i : 1 .. N) { run process() }
	}
}
