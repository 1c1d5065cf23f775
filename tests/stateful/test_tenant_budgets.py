"""Tenants of one limit against a simple model: every claim is admitted or refused as the rule says, all sums are exact,
and where everybody gives back what it is asked for, nobody is refused its fair share.
"""

import weakref
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tensormem import errors
from tensormem._core import TenantBudget, TenantBudgets

SIZES = st.integers(1, 120)
INDEX = st.integers(0, 7)


@dataclass
class Model:
    budget: TenantBudget
    guaranteed: int
    maximum: int
    priority: int
    used: int = 0

    @property
    def committed(self) -> int:
        return max(self.used, self.guaranteed)


class TenantMachine(RuleBasedStateMachine):
    """Nobody can be asked."""

    yields = False

    @initialize(limit=st.integers(0, 300))
    def start(self, limit: int) -> None:
        self.limit = limit
        self.budgets = TenantBudgets(limit)
        self.tenants: list[Model] = []

    def pick(self, index: int) -> Model:
        return self.tenants[index % len(self.tenants)]

    @property
    def used(self) -> int:
        return sum(each.used for each in self.tenants)

    @property
    def guaranteed(self) -> int:
        return sum(each.guaranteed for each in self.tenants)

    @precondition(lambda self: len(self.tenants) < 6)
    @rule(guaranteed=st.integers(0, 150), maximum=st.integers(0, 300), priority=st.integers(1, 5))
    def register(self, guaranteed: int, maximum: int, priority: int) -> None:
        model: weakref.ref[Model]

        def give(wanted: int) -> None:
            found = model()
            assert found is not None
            found.budget.give_back(wanted)
            found.used -= wanted

        try:
            budget = self.budgets.register(
                guaranteed=guaranteed,
                maximum=maximum,
                priority=priority,
                on_pressure=give if self.yields else None,
            )
        except errors.InvalidArgument:
            assert guaranteed > maximum
        except errors.OutOfPhysicalMemory as error:
            assert (error.requested, error.available) == (guaranteed, self.limit - self.guaranteed)
            assert error.requested > error.available
        else:
            assert guaranteed <= min(maximum, self.limit - self.guaranteed)
            fresh = Model(budget, guaranteed, maximum, priority)
            model = weakref.ref(fresh)
            self.tenants.append(fresh)

    def fits(self, tenant: Model, nbytes: int) -> bool:
        after = tenant.used + nbytes
        others = sum(each.committed for each in self.tenants if each is not tenant)
        if after > tenant.maximum or self.used + nbytes > self.limit:
            return False
        return after <= tenant.guaranteed or others + after <= self.limit

    @precondition(lambda self: self.tenants)
    @rule(index=INDEX, nbytes=SIZES)
    def claim(self, index: int, nbytes: int) -> None:
        tenant = self.pick(index)
        fits, before = self.fits(tenant, nbytes), tenant.used
        promised = before + nbytes <= self.share_of(tenant, nbytes)
        try:
            tenant.budget.claim(nbytes)
        except errors.OutOfPhysicalMemory as error:
            assert not fits
            assert not (self.yields and promised)
            assert error.requested == nbytes
            most = max((n for n in range(301) if self.fits(tenant, n)), default=0)
            assert error.available == (most if tenant.used < tenant.maximum else 0)
        else:
            assert fits or self.yields
            tenant.used += nbytes

    def share_of(self, tenant: Model, nbytes: int) -> float:
        """The fair share, by pouring a little at a time."""
        wants = {
            id(each): float(min(each.used + (nbytes if each is tenant else 0), max(each.maximum, each.used)))
            for each in self.tenants
        }
        shares = {id(each): float(each.guaranteed) for each in self.tenants}
        room = float(self.limit - self.guaranteed)
        while room > 1e-6:
            hungry = [each for each in self.tenants if wants[id(each)] > shares[id(each)] + 1e-9]
            if not hungry:
                break
            weights = sum(each.priority for each in hungry)
            left = [(wants[id(each)] - shares[id(each)]) / each.priority for each in hungry]
            step = min(room / weights, *left)
            for each in hungry:
                shares[id(each)] += step * each.priority
            room -= step * weights
        return shares[id(tenant)] + 1e-6 if tenant.used + nbytes <= tenant.maximum else -1.0

    @precondition(lambda self: self.tenants)
    @rule(index=INDEX, part=st.floats(0, 1))
    def give_back(self, index: int, part: float) -> None:
        tenant = self.pick(index)
        nbytes = int(tenant.used * part)
        tenant.budget.give_back(nbytes)
        tenant.used -= nbytes

    @rule(limit=st.integers(0, 300))
    def set_limit(self, limit: int) -> None:
        try:
            self.budgets.limit = limit
        except errors.OutOfPhysicalMemory as error:
            assert (error.requested, error.available) == (self.guaranteed, limit)
            assert limit < self.guaranteed
        else:
            assert limit >= self.guaranteed
            self.limit = limit
            assert not self.yields or self.used <= limit

    @precondition(lambda self: self.tenants)
    @rule(index=INDEX, guaranteed=st.integers(0, 150), maximum=st.integers(0, 300))
    def set_terms(self, index: int, guaranteed: int, maximum: int) -> None:
        tenant = self.pick(index)
        left = self.limit - self.guaranteed + tenant.guaranteed
        try:
            tenant.budget.set_terms(guaranteed=guaranteed, maximum=maximum)
        except errors.InvalidArgument:
            assert guaranteed > maximum
        except errors.OutOfPhysicalMemory:
            assert guaranteed > left
        else:
            assert guaranteed <= min(left, maximum)
            tenant.guaranteed, tenant.maximum = guaranteed, maximum

    @precondition(lambda self: self.tenants)
    @rule(index=INDEX)
    def drop(self, index: int) -> None:
        del self.tenants[index % len(self.tenants)]

    @invariant()
    def all_sums_are_exact(self) -> None:
        assert self.budgets._is_valid()
        assert (self.budgets.used, self.budgets.guaranteed) == (self.used, self.guaranteed)
        assert self.budgets.limit == self.limit
        for tenant in self.tenants:
            assert (tenant.budget.used, tenant.budget.claimed) == (tenant.used, tenant.used)


class YieldingMachine(TenantMachine):
    """Everybody gives back what it is asked for."""

    yields = True


TestTenants = TenantMachine.TestCase
TestTenants.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestYieldingTenants = YieldingMachine.TestCase
TestYieldingTenants.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
