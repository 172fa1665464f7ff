"""One router for all tests of it; each test gets it whole, whatever the one before broke."""

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tests.support.router_stand import Stand


@pytest.fixture(scope="session")
def _stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with Stand(directory=tmp_path_factory.mktemp("router")) as stand:
        yield stand


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client without limits of its own."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session


@pytest.fixture
async def stand(_stand: Stand, session: aiohttp.ClientSession) -> Stand:
    """Envoy, picker, two prefill and two decode workers, all well."""
    await _stand.repair(session)
    return _stand
